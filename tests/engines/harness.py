"""A local engine to try things with: starts programs, awaits what becomes of them, reads what they printed."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from turnout import config
from turnout.engines.local import LocalEngine, Storage
from turnout.job import (
    Attempt,
    Ended,
    Launch,
    Mount,
    Policy,
    Program,
    ReplicaName,
    Report,
    Resources,
    Role,
    Spec,
    Started,
    Synced,
)
from turnout.paths import Paths
from turnout.vault import KeyRing

MASTER = ReplicaName("master", 0)
PATIENCE = 30


class Directory(NamedTuple):
    root: Path
    parts: tuple[str, ...]
    read_only: bool


class Directories:
    """Storage that knows `file://` only, and lets everybody everywhere."""

    def bind(self, source: str, project: str, read_only: bool) -> Directory:
        return Directory(Path(source.removeprefix("file://")), (), read_only)

    def transfer(self, source: str, project: str) -> None:
        return None

    def open_object(self, source: str, project: str) -> None:
        return None

    def near(self, source: str, project: str) -> None:
        return None


class Yard:
    def __init__(self, place: Path, **local: Any) -> None:
        self.place = place
        self.paths = Paths(place / "data")
        limits = {
            name: local.pop(name) for name in ("processes", "log_bytes", "sample_seconds") if name in local
        }
        runtimes = local.pop("runtimes", {})
        self._storage: Storage = local.pop("storage", None) or Directories()
        self._ring: KeyRing = local.pop("ring", None) or KeyRing()
        self._flags: config.Table = {"engines": {"local": local}, "limits": limits, "runtimes": runtimes}
        self.sandbox: str = local["sandbox"]
        self.reports: list[Report] = []
        self._news = asyncio.Condition()
        # As in life no two services have jobs of the same id: leftovers of one are known by it, all over the machine.
        self._jobs = time.time_ns()

    async def __aenter__(self) -> Self:
        self.engine = LocalEngine(self.paths, config.load(flags=self._flags), self._storage, self._ring)
        await self.engine.open()
        self._listener = asyncio.get_running_loop().create_task(self._listen())
        await self.wait(lambda report: isinstance(report, Synced))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Ends what runs, so that the keeper ends too."""
        await self.stop_all()
        await self.leave()

    async def stop_all(self) -> None:
        ended = {(report.attempt, report.replica) for report in self.reports if isinstance(report, Ended)}
        for report in list(self.reports):
            if isinstance(report, Started) and (report.attempt, report.replica) not in ended:
                await self.engine.stop(report.attempt, 0)
                await self.ended(report.attempt, report.replica)

    async def leave(self) -> None:
        """As the service does when it ends: what runs goes on."""
        self._listener.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._listener
        await self.engine.close()

    async def come_back(self) -> None:
        """The service again, after `leave`."""
        self.reports.clear()
        await self.__aenter__()

    async def kill_keeper(self) -> None:
        """And wait until the next one has told all that it knows."""
        self.reports.clear()
        os.kill(self.keeper, signal.SIGKILL)
        await self.wait(lambda report: isinstance(report, Synced))

    @property
    def keeper(self) -> int:
        return self.engine.keeper

    async def start(self, *argv: str, **details: Any) -> Attempt:
        launch = self.launch(*argv, **details)
        await self.engine.start(launch)
        return launch.attempt

    async def run(self, *argv: str, **details: Any) -> Ended:
        return await self.ended(await self.start(*argv, **details))

    async def python(self, program: str, *args: str, **details: Any) -> Attempt:
        return await self.start("python", "-c", program, *args, **details)

    def launch(
        self,
        *argv: str,
        mounts: tuple[Mount, ...] = (),
        policy: Policy = Policy(),  # noqa: B008
        resources: Resources = Resources(),  # noqa: B008
        env: dict[str, str] | None = None,
        roles: tuple[Role, ...] = (),
        gpus: dict[str, tuple[int, ...]] | None = None,
        working_dir: str = "",
        runtime: str = "",
        user: int | None = None,
        scratch: tuple[str, ...] = (),
        dialect: str = "tia",
        key: str = "",
    ) -> Launch:
        self._jobs += 1
        program = Program(argv, runtime=runtime, user=user)
        master = Role("master", program, leads=True, task_type="chief", resources=resources, env=env or {})
        spec = Spec(
            roles or (master,), mounts=mounts, scratch=scratch, policy=policy, working_dir=working_dir
        )
        if key:
            spec = msgspec.structs.replace(spec, key=key, wrapped_key=self._ring.new(key).header.text)
        return Launch(Attempt(self._jobs, 1), "default", dialect, "my-job", spec, gpus or {})

    async def started(self, attempt: Attempt, replica: ReplicaName = MASTER) -> Started:
        found = await self.wait(
            lambda r: isinstance(r, Started) and (r.attempt, r.replica) == (attempt, replica)
        )
        assert isinstance(found, Started)
        return found

    async def ended(self, attempt: Attempt, replica: ReplicaName = MASTER) -> Ended:
        found = await self.wait(
            lambda r: isinstance(r, Ended) and (r.attempt, r.replica) == (attempt, replica)
        )
        assert isinstance(found, Ended)
        return found

    async def wait(self, wanted: Callable[[Report], bool]) -> Report:
        """For the first such report, if it has not come yet."""
        async with asyncio.timeout(PATIENCE), self._news:
            while True:
                for report in self.reports:
                    if wanted(report):
                        return report
                await self._news.wait()

    def out(self, attempt: Attempt, replica: ReplicaName = MASTER, stream: int = 0) -> str:
        log = self.engine.log(attempt, replica)
        return log.read(stream, 0, log.size(stream)).decode()

    async def printed(
        self, attempt: Attempt, text: str, replica: ReplicaName = MASTER, stream: int = 0
    ) -> str:
        """Waits until it has printed this; all that it has printed then."""
        async with asyncio.timeout(PATIENCE):
            async for _ in self.engine.follow(attempt):
                said = self.out(attempt, replica, stream)
                if text in said:
                    return said
        raise AssertionError

    async def _listen(self) -> None:
        async for report in self.engine.reports():
            async with self._news:
                self.reports.append(report)
                self._news.notify_all()


def alive(marker: str) -> list[int]:
    """Processes whose command line holds the marker; zombies are not alive and have none."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and marker.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]
