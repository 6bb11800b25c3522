"""A local engine for tests."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from tests.engines.harness import MASTER, TIMEOUT, Harness
from tests.engines.image_layers import TestImages
from turnout import config
from turnout.engines.local import LocalEngine
from turnout.engines.local.data.staging import MountSources
from turnout.engines.local.users import ownership
from turnout.engines.local.users.account import Accounts, accounts
from turnout.job import Launch, Mount, Synced
from turnout.paths import Paths
from turnout.storage import Bound, HostPath, Mounted, Resolved
from turnout.storage.host import HostDirectory, HostPaths
from turnout.storage.owners import Owners
from turnout.storage.source import parse
from turnout.vault import KeyRing

__all__ = ["MASTER", "TIMEOUT", "EngineHarness", "PodmanHarness"]


IN_IMAGE = "image"
"""In place of a sandbox: bubblewrap, and programs run in an image."""
_IMAGE = "tests/python:1"


def kinds(sandbox: str) -> dict[str, str]:
    """The words for an EngineHarness."""
    return {"sandbox": "bubblewrap", "image": _IMAGE} if sandbox == IN_IMAGE else {"sandbox": sandbox}


class UnrestrictedHostPaths(HostPaths):
    """Storage that has `file://` only, and gives every project every directory."""

    may_hang = False

    def __init__(self) -> None:
        pass

    def resolve(
        self, source: str, project: str, *, read_only: bool, encrypted: bool, required: bool, make: bool
    ) -> Resolved:
        found = self.locate(source, project)
        return Bound(found) if isinstance(found, HostPath) else found

    def locate(self, source: str, project: str) -> HostPath | Mounted:
        if source.startswith(("nfs://", "cephfs://")):
            mounted = parse(source)
            assert isinstance(mounted, Mounted)
            return mounted
        return HostPath(self, source, PurePosixPath(source.removeprefix("file://")))

    def find(self, source: str, path: PurePosixPath) -> HostDirectory:
        return HostDirectory(Path(path), (), writable=True)


def accounts_in(base_dir: Path) -> Accounts:
    """The accounts of the supervisor and the jobs of a harness in that directory."""
    data = base_dir / "data"
    data.mkdir(mode=0o711, parents=True, exist_ok=True)
    return accounts(config.LocalEngineSettings(), Paths(data).users)


def owners(users: Accounts) -> Owners | None:
    """The owners of embedded buckets; None: everything belongs to the user of the tests."""
    if not users.uids:
        return None
    return Owners(*ownership.bucket_owners(users))


class EngineHarness(Harness):
    """A local engine. When it is closed for good, all its jobs are stopped, so that the supervisor ends too."""

    engine: LocalEngine

    def __init__(self, base_dir: Path, image: str = "", **local: Any) -> None:
        """`image`: programs run in this image of the tests, if they name none."""
        super().__init__()
        self.base_dir = base_dir
        self.paths = Paths(base_dir / "data")
        limits = {
            name: local.pop(name)
            for name in ("processes", "log_bytes", "sample_seconds", "disk")
            if name in local
        }
        runtimes = local.pop("runtimes", {})
        self._storage: MountSources = local.pop("storage", None) or UnrestrictedHostPaths()
        self._ring: KeyRing = local.pop("ring", None) or KeyRing()
        self.accounts: Accounts = local.pop("accounts", None) or accounts_in(base_dir)
        self._flags: config.Table = {"engines": {"local": local}, "limits": limits, "runtimes": runtimes}
        self.sandbox: str = local["sandbox"]
        self.images = TestImages(self.paths, self.accounts.supervisor) if image else None
        self.image = image

    def make_engine(self) -> LocalEngine:
        settings = config.load(flags=self._flags)
        return LocalEngine(
            self.paths, settings, self._storage, self._ring, accounts=self.accounts, images=self.images
        )

    def launch(self, *argv: str, key: str = "", image: str | None = None, **details: Any) -> Launch:
        """`key`: encrypt the job with this key of the ring. `image`: run it in this image; empty: in none."""
        launch = super().launch(*argv, **details)
        if root := self.image if image is None else image:
            launch = in_image(launch, root)
        if not key:
            return launch
        wrapped = self._ring.new(key).header.text
        spec = msgspec.structs.replace(launch.spec, key=key, wrapped_key=wrapped)
        return msgspec.structs.replace(launch, spec=spec)

    async def kill_supervisor(self) -> None:
        """And wait until the next one has reported everything that it holds."""
        self.reports.clear()
        os.kill(self.supervisor, signal.SIGKILL)
        await self.wait(lambda report: isinstance(report, Synced))

    @property
    def supervisor(self) -> int:
        return self.engine.supervisor_pid


class PodmanHarness(EngineHarness):
    """All programs run in an image, by podman."""

    def __init__(self, base_dir: Path) -> None:
        super().__init__(base_dir, "tests/python:1", sandbox="bubblewrap", containers="podman")

    def launch(
        self, *argv: str, mounts: tuple[Mount, ...] = (), working_dir: str = "", **details: Any
    ) -> Launch:
        """Programs begin in their first mount, as they do without an image."""
        first = mounts[0].target if mounts else ""
        return super().launch(*argv, mounts=mounts, working_dir=working_dir or first, **details)


def in_image(launch: Launch, image: str) -> Launch:
    replace = msgspec.structs.replace
    roles = tuple(
        replace(role, program=replace(role.program, root=image, image=image)) for role in launch.spec.roles
    )
    return replace(launch, spec=replace(launch.spec, roles=roles))


def running_processes(marker: str) -> list[int]:
    """Processes whose command line contains the marker. Zombies have no command line."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and marker.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


async def process_ended(pidfd: int) -> None:
    """Wait for the end of the process, and close the pidfd."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        await asyncio.wait_for(ended.wait(), TIMEOUT)
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


async def supervisor_ended(harness: EngineHarness) -> None:
    with contextlib.suppress(ProcessLookupError):
        await process_ended(os.pidfd_open(harness.supervisor))
