"""Data of jobs: `cos:// obs:// gs:// s3:// file:// nfs://`.

storage.py   how a job gets at the source of a mount: Bound, Linked, Copied or Mounted
objects.py   objects by their URL
presence.py  whether there is something at a source
source.py    parses a source
backend.py   the protocol of a bucket for objects.py
clients.py   the buckets as the gateways' clients see them, embedded and remote ones in one way
incoming.py  the bytes of an object on their way into a bucket
embedded/    buckets that are directories below the data directory
remote/      buckets in S3, GCS, COS or OBS
host.py      `file://`
"""

from turnout.storage.directories import Directory
from turnout.storage.embedded.path import EmbeddedPath
from turnout.storage.host import HostPath
from turnout.storage.owners import Owners
from turnout.storage.presence import Presence
from turnout.storage.remote.settings import RemoteBuckets, RemotePath, RemoteSettings
from turnout.storage.source import Mounted
from turnout.storage.storage import Bound, Copied, Linked, Location, Resolved, Storage
from turnout.vault import KeyGone

__all__ = [
    "Bound",
    "Copied",
    "Directory",
    "EmbeddedPath",
    "HostPath",
    "KeyGone",
    "Linked",
    "Location",
    "Mounted",
    "Owners",
    "Presence",
    "RemoteBuckets",
    "RemotePath",
    "RemoteSettings",
    "Resolved",
    "Storage",
]
