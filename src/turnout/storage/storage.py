"""The room's face."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from turnout.errors import Denied, Invalid, NotFound, Unsupported
from turnout.storage.buckets import Buckets
from turnout.storage.host import HostPaths
from turnout.storage.near import Near
from turnout.storage.objects import Embedded
from turnout.storage.remote import Backing, carried, choose
from turnout.storage.source import Elsewhere, InBucket, OnHost, parse
from turnout.vault import KeyRing

READ, WRITE, ENTER = 4, 2, 1

Blocked = Callable[[Path, int], Path | None]
"""The first part of a path that keeps the user that jobs run as from it, by permission bits; None if nothing does."""


class Remote(NamedTuple):
    """Which buckets are not embedded."""

    buckets: Mapping[str, Backing] = {}
    schemes: Mapping[str, Backing] = {}
    """Behind all buckets of `cos`, `obs`, `gs` or `s3` that are not named."""
    private: Mapping[str, str] = {}
    """Bucket, or scheme with `://` → the only project that may use it."""
    environment: Mapping[str, str] = {}
    """Where credentials come from that are not in the settings."""


class Bound(NamedTuple):
    """A directory of this machine, and whether it may only be read.

    Whoever opens it goes from `root` down the `parts` without following links: what lies there can be swapped for one
    at any time. `path` is for people.
    """

    root: Path
    """Nobody who runs jobs can move it or put a link in its place."""
    parts: tuple[str, ...]
    read_only: bool

    @property
    def path(self) -> Path:
        return self.root.joinpath(*self.parts)


class Storage:
    def __init__(
        self,
        buckets: Path,
        host_paths: list[tuple[Path, bool]],
        data: Path,
        owner: tuple[int, int] | None,
        blocked: Blocked = lambda path, mode: None,
        remote: Remote = Remote(),  # noqa: B008
        ring: KeyRing | None = None,
    ) -> None:
        """`host_paths`: (directory, writable) that `file://` may reach. `owner`: (uid, gid) of what is made here."""
        self._backings, self._schemes, self._private, self._environment = remote
        self._buckets = Buckets(buckets, owner)
        self.embedded = Embedded(self._buckets, ring)
        """The buckets that lie here, object by object."""
        self._host = HostPaths(host_paths, data)
        self._blocked = blocked

    def check(self, source: str, read_only: bool = False, project: str = "") -> str:
        """Raises Invalid if no job could ever have it. Makes nothing. What the user should know, if anything.

        Raises Denied if it is in a bucket that is not this project's.
        """
        place = parse(source)
        if project and isinstance(place, InBucket) and self.transfer(source, project) is None:
            self._buckets.has(place.bucket, project)
        if not isinstance(place, OnHost):
            return ""
        found = self._host.find(source, place.path)
        closed = self._blocked(found.path, READ | ENTER)
        if closed:
            raise Invalid(
                f"{source!r}: the user that jobs run as may not enter {closed}; chmod o+rx {closed}"
            )
        if found.writable and not read_only and self._blocked(found.path, WRITE | ENTER):
            return (
                f"the user that jobs run as may not write to {found.path}; chmod o+w {found.path} to let it"
            )
        return ""

    def transfer(self, source: str, project: str) -> dict[str, Any] | None:
        """How the mover reaches what lies in a real object store, credentials and all; None: it can be bound.

        Raises Invalid, or Denied for what another project has to itself.
        """
        place = parse(source)
        if not isinstance(place, InBucket):
            return None
        scheme = source.partition("://")[0]
        backing = choose(self._backings, self._schemes, scheme, place.bucket)
        if backing is None:
            return None
        if self._private.get(place.bucket, self._private.get(f"{scheme}://", project)) != project:
            raise Denied(f"{source!r}: the bucket {place.bucket} is another project's")
        reach = msgspec.to_builtins(carried(backing, self._environment))
        return {"backing": reach, "prefix": "/".join(place.parts), "url": source}

    def open_object(self, source: str, project: str) -> int | None:
        """A descriptor, if the source names one object of an embedded bucket and not a directory."""
        place = parse(source)
        if not isinstance(place, InBucket) or not place.parts:
            return None
        try:
            return self.embedded.open(place.bucket, "/".join(place.parts), project)[0]
        except (NotFound, Invalid):
            return None

    def near(self, source: str, project: str) -> Near | None:
        """What lies in an embedded bucket, object by object; None for all other sources. Raises Invalid."""
        place = parse(source)
        if not isinstance(place, InBucket) or self.transfer(source, project) is not None:
            return None
        return Near(self.embedded, place, project, directory=source.endswith("/"))

    def bind(self, source: str, project: str, read_only: bool) -> Bound:
        """The directory for a job of this project; a bucket or a directory in one is made if it is missing.

        Raises Invalid, or Denied for another project's bucket.
        """
        match parse(source):
            case InBucket() as place:
                return Bound(*self._buckets.bind(source, place, project), read_only)
            case OnHost(path):
                found = self._host.find(source, path)
                return Bound(found.root, found.parts, read_only or not found.writable)
            case Elsewhere(scheme):
                raise Unsupported(
                    f"{source!r}: {scheme}:// is not mounted here; file:// can name where it is mounted"
                )
