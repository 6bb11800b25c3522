"""The room's face."""

from pathlib import Path
from typing import NamedTuple

from turnout.errors import Unsupported
from turnout.storage.buckets import Buckets
from turnout.storage.host import HostPaths
from turnout.storage.source import Elsewhere, InBucket, OnHost, parse


class Bound(NamedTuple):
    """A directory of this machine, and whether it may only be read."""

    path: Path
    read_only: bool


class Storage:
    def __init__(
        self, buckets: Path, host_paths: list[tuple[Path, bool]], data: Path, owner: tuple[int, int] | None
    ) -> None:
        """`host_paths`: (directory, writable) that `file://` may reach. `owner`: (uid, gid) of what is made here."""
        self._buckets = Buckets(buckets, owner)
        self._host = HostPaths(host_paths, data)

    def check(self, source: str, read_only: bool = False) -> None:
        """Raises Invalid if no job could ever have it. Makes nothing."""
        place = parse(source)
        if isinstance(place, OnHost):
            self._host.find(source, place.path)

    def bind(self, source: str, project: str, read_only: bool) -> Bound:
        """The directory for a job of this project; a bucket or a directory in one is made if it is missing.

        Raises Invalid, or Denied for another project's bucket.
        """
        match parse(source):
            case InBucket() as place:
                return Bound(self._buckets.bind(source, place, project), read_only)
            case OnHost(path):
                found = self._host.find(source, path)
                return Bound(found.path, read_only or not found.writable)
            case Elsewhere(scheme):
                raise Unsupported(
                    f"{source!r}: {scheme}:// is not mounted here; file:// can name where it is mounted"
                )
