"""The mounts of a job: from their sources to the directories that the supervisor binds."""

import os

from turnout.engines import Refused
from turnout.engines.local.data import nfs
from turnout.engines.local.data.stager_client import TransferFailed
from turnout.engines.local.data.staging import MountSources, Staging
from turnout.errors import NotFound, TurnoutError, Unsupported
from turnout.job import Launch, Mount
from turnout.runner.plan import Bind
from turnout.runner.supervisor.replicas.mounts import open_source
from turnout.storage import Bound, Directory, HostPath, Mounted, RemotePath, Resolved
from turnout.storage.host import in_time


class MountBinder:
    """For each launch: `resolve`, then `prepare` if a mount has to be copied or mounted or may hang, then `binds`."""

    def __init__(self, storage: MountSources, staging: Staging, nfs_mounter: nfs.NfsMounter) -> None:
        self._storage = storage
        self._staging = staging
        self._nfs = nfs_mounter

    def resolve(self, launch: Launch) -> list[Resolved]:
        """How the job reaches each of its mounts. Raises Refused if it cannot, and TransferFailed for a missing one."""
        resolved: list[Resolved] = []
        try:
            for mount in launch.spec.mounts:
                found = self._storage.resolve(
                    mount.source,
                    launch.project,
                    read_only=mount.read_only,
                    encrypted=bool(launch.spec.key),
                    required=mount.required,
                    make=mount.output,
                )
                if isinstance(found, Mounted):
                    self._nfs.check(found)
                resolved.append(found)
        except NotFound as error:
            raise TransferFailed(error.message) from error
        except TurnoutError as error:
            raise Refused(error.message) from error
        return resolved

    def are_bound(self, mounts: list[Resolved]) -> bool:
        """Whether none has to be copied or mounted first."""
        return all(isinstance(mount, Bound) for mount in mounts)

    def may_hang(self, mounts: list[Resolved]) -> bool:
        """Whether one of them is on a file system that may not answer."""
        return any(map(_may_hang, mounts))

    async def prepare(self, launch: Launch, mounts: list[Resolved]) -> dict[int, Bind]:
        """The binds for mounts that are copied or mounted, or may hang, by number. Raises TurnoutError."""
        return await self._staging.fetch(launch, mounts) | await self._prepare(launch, mounts)

    async def prepare_restart(self, launch: Launch, mounts: list[Resolved]) -> dict[int, Bind]:
        """As `prepare`, for a replica that starts again: copies stay as the job has changed them."""
        return self._staging.copies(launch, mounts) | await self._prepare(launch, mounts)

    def binds(self, launch: Launch, mounts: list[Resolved], prepared: dict[int, Bind]) -> list[Bind]:
        """Also makes missing directories in embedded buckets. Raises Refused, and TransferFailed for a missing file."""
        binds: list[Bind] = []
        try:
            for number, (mount, resolved) in enumerate(zip(launch.spec.mounts, mounts, strict=True)):
                bind = prepared.get(number)
                if bind is None:
                    bound = _directory(resolved, mount.read_only)
                    bind = Bind(str(bound.root), bound.parts, mount.target, bound.read_only)
                if not _may_hang(resolved):
                    _check_files(mount, bind)
                binds.append(bind)
        except (TransferFailed, NotFound) as error:
            raise TransferFailed(error.message) from error
        except TurnoutError as error:
            raise Refused(error.message) from error
        return binds

    async def _prepare(self, launch: Launch, mounts: list[Resolved]) -> dict[int, Bind]:
        """Each mount has a time limit."""
        binds: dict[int, Bind] = {}
        for number, (mount, resolved) in enumerate(zip(launch.spec.mounts, mounts, strict=True)):
            match resolved:
                case Mounted():
                    mount_point = await self._nfs.mount(resolved, launch.project)
                    binds[number] = Bind(str(mount_point), (), mount.target, mount.read_only)
                case Bound(HostPath() as path) if path.may_hang:
                    bound = await path.bind_in_time(launch.project, mount.read_only)
                    bind = Bind(str(bound.root), bound.parts, mount.target, bound.read_only)
                    await in_time(mount.source, launch.project, _check_files, mount, bind)
                    binds[number] = bind
                case _:
                    pass
        return binds


def _check_files(mount: Mount, bind: Bind) -> None:
    """Raises TransferFailed if one of the files that the job needs is missing."""
    if not mount.files:
        return
    try:
        here = open_source((bind.root, bind.parts))
    except OSError:
        return  # the supervisor opens it in the same way, and says what is wrong
    try:
        for name in mount.files:
            # Code may have links in it. The program opens the file itself, as its own user.
            if not os.path.isfile(f"/proc/self/fd/{here}/{name}"):
                raise TransferFailed(f"there is no file {f'{mount.source}/{name}'!r}")
    finally:
        os.close(here)


def _may_hang(resolved: Resolved) -> bool:
    match resolved:
        case Mounted():
            return True
        case Bound(HostPath() as path):
            return path.may_hang
        case _:
            return False


def _directory(resolved: Resolved, read_only: bool) -> Directory:
    """A bucket that was bound at the first start stays bound, even if it has got encrypted objects since."""
    if isinstance(resolved, Mounted):
        raise Unsupported(f"{resolved.source!r} is not mounted")
    if isinstance(resolved.path, RemotePath):
        raise TransferFailed(f"the copy of {resolved.path.url!r} is gone")
    return resolved.path.bind(read_only)
