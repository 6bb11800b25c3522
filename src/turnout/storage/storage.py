"""Sources of mounts: where their data is, and how a job gets at it."""

from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from turnout.errors import Invalid, NotFound
from turnout.storage.embedded.buckets import Buckets
from turnout.storage.embedded.objects import EmbeddedStore
from turnout.storage.embedded.path import EmbeddedPath
from turnout.storage.host import HostPath, HostPaths, in_time
from turnout.storage.owners import Owners
from turnout.storage.presence import Presence
from turnout.storage.remote.settings import RemoteBuckets, RemotePath
from turnout.storage.source import InBucket, Mounted, OnHost, Source, parse
from turnout.vault import KeyRing

READ, WRITE, ENTER = 4, 2, 1

FindBlocked = Callable[[str, Path, int], Path | None]
"""The first part of a path whose permissions keep the jobs of a project from it; None if there is none."""

Location = EmbeddedPath | RemotePath | HostPath | Mounted


class Bound(NamedTuple):
    """The job gets the directory itself, as a bind mount."""

    path: EmbeddedPath | HostPath


class Linked(NamedTuple):
    """One object in an embedded bucket: the job gets a directory with a hard link to it."""

    path: EmbeddedPath


class Copied(NamedTuple):
    """The job gets a copy: the data is in a remote store, or must be decrypted or encrypted on its way.

    Also a bucket that does not exist: the copy is empty, and the first file that is saved makes the bucket.
    """

    path: EmbeddedPath | RemotePath


Resolved = Bound | Linked | Copied | Mounted


class Storage:
    def __init__(
        self,
        buckets: Path,
        host_paths: list[tuple[Path, bool]],
        data: Path,
        owners: Owners | None,
        find_blocked: FindBlocked = lambda project, path, mode: None,
        remote: RemoteBuckets = RemoteBuckets(),  # noqa: B008
        ring: KeyRing | None = None,
        open_to_all: bool = False,
    ) -> None:
        """`host_paths`: (directory, writable) that `file://` may name. `owners`: None if the service owns all.

        `open_to_all`: every project may use every embedded bucket.
        """
        self.remote = remote
        self._buckets = Buckets(buckets, owners, open_to_all)
        self.embedded = EmbeddedStore(self._buckets, ring)
        self._host = HostPaths(host_paths, data)
        self._find_blocked = find_blocked

    def open(self) -> None:
        """Call it once, before anything else."""
        self._buckets.close_to_others()

    async def check_host(self, source: str, read_only: bool, project: str, files: Sequence[str] = ()) -> str:
        """Whether a job could use a directory of the host. Returns a note for the user, or an empty string.

        `files`: paths that must be files in it. Raises Invalid, NotFound if one of those is missing, or TimedOut if
        the file system does not answer.
        """
        return await in_time(source, project, self.check, source, read_only, project, files)

    def check(
        self, source: str, read_only: bool = False, project: str = "", files: Sequence[str] = ()
    ) -> str:
        """As `check_host`, for any source; of a bucket only its name is checked. Blocks."""
        place = parse(source)
        if not isinstance(place, OnHost):
            return ""
        return self._check_host(source, place.path, read_only, project, files)

    def resolve(
        self,
        source: str,
        project: str,
        *,
        read_only: bool,
        encrypted: bool,
        required: bool = False,
        make: bool = False,
    ) -> Resolved:
        """How a job of this project gets at the source. Makes nothing.

        `encrypted`: the job is encrypted, so what it writes is too. `required`: there must be an object in an
        embedded bucket; others are looked for when they are fetched. `make`: the bucket is made before the job starts,
        and not by the first file that the job writes. Raises Invalid, Denied or NotFound.
        """
        match self.locate(source, project):
            case EmbeddedPath() as path:
                present = path.presence()
                if required and not present.exists:
                    raise present.missing(source)
                if encrypted or path.holds_sealed():
                    return Copied(path)
                if present is Presence.NO_BUCKET and not make:
                    # To bind it, the service would have to make the bucket, and the job might never write to it.
                    return Copied(path)
                return Linked(path) if read_only and present is Presence.OBJECT else Bound(path)
            case RemotePath() as path:
                return Copied(path)
            case HostPath() as path:
                return Bound(path)
            case Mounted() as mounted:
                return mounted

    def locate(self, source: str, project: str) -> Location:
        """Where the data is, by the source and the settings alone.

        Raises Invalid, Denied for a remote bucket of another project, and Misconfigured.
        """
        return self._locate(source, parse(source), project)

    def _locate(self, source: str, place: Source, project: str) -> Location:
        match place:
            case InBucket():
                remote = self.remote.find(source, place, project)
                return remote or EmbeddedPath(self.embedded, source, place, project)
            case OnHost(path):
                return HostPath(self._host, source, path)
            case Mounted():
                return place

    def _check_host(
        self, source: str, path: PurePosixPath, read_only: bool, project: str, files: Sequence[str]
    ) -> str:
        found = self._host.find(source, path)
        for name in files:
            if not (found.path / name).is_file():
                raise NotFound(f"there is no file {f'{source}/{name}'!r}")
        closed = self._find_blocked(project, found.path, READ | ENTER)
        if closed:
            raise Invalid(
                f"{source!r}: the user that jobs run as may not enter {closed}; chmod o+rx {closed} allows it"
            )
        if found.writable and not read_only and self._find_blocked(project, found.path, WRITE | ENTER):
            return (
                f"the user that jobs run as may not write to {found.path}; chmod o+w {found.path} allows it"
            )
        return ""
