"""Where data comes from and goes to: `cos:// obs:// gs:// s3:// file:// nfs://` as directories on this machine."""

from turnout.storage.remote import Backing
from turnout.storage.storage import Bound, Remote, Storage
from turnout.vault import KeyGone

__all__ = ["Backing", "Bound", "KeyGone", "Remote", "Storage"]
