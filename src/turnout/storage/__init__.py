"""Where data comes from and goes to: `cos:// obs:// gs:// s3:// file:// nfs://` as directories on this machine."""

from turnout.storage.storage import Bound, Storage

__all__ = ["Bound", "Storage"]
