"""What the tests of every engine need: start programs, wait for reports about them, read what they printed."""

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

from turnout.engines import Engine
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

MASTER = ReplicaName("master", 0)
TIMEOUT = 30


class Harness(ABC):
    """An open engine that can be closed and opened again like a service that restarts. Subclasses make the engine."""

    engine: Engine

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self._reported = asyncio.Condition()
        # No two harnesses have jobs of the same id, because processes are found by it on the whole machine.
        self._jobs = time.time_ns()

    @abstractmethod
    def make_engine(self) -> Engine: ...

    async def __aenter__(self) -> Self:
        self.engine = self.make_engine()
        await self.engine.open()
        self._listener = asyncio.get_running_loop().create_task(self._listen())
        await self.wait(lambda report: isinstance(report, Synced))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop_all()
        await self.disconnect()

    async def stop_all(self) -> None:
        ended = {(report.attempt, report.replica) for report in self.reports if isinstance(report, Ended)}
        for report in list(self.reports):
            if isinstance(report, Started) and (report.attempt, report.replica) not in ended:
                await self.engine.stop(report.attempt, 0)
                await self.ended(report.attempt, report.replica)

    async def disconnect(self) -> None:
        """As the service does when it stops: jobs continue."""
        self._listener.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._listener
        await self.engine.close()

    async def reconnect(self) -> None:
        """As the next service does, after `disconnect`."""
        self.reports.clear()
        await self.__aenter__()

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
        project: str = "default",
    ) -> Launch:
        self._jobs += 1
        program = Program(argv, runtime=runtime, user=user)
        master = Role("master", program, leads=True, task_type="chief", resources=resources, env=env or {})
        spec = Spec(
            roles or (master,), mounts=mounts, scratch=scratch, policy=policy, working_dir=working_dir
        )
        return Launch(Attempt(self._jobs, 1), project, dialect, "my-job", spec, gpus or {})

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
        """Wait for the first such report, if it has not come yet."""
        async with asyncio.timeout(TIMEOUT), self._reported:
            while True:
                for report in self.reports:
                    if wanted(report):
                        return report
                await self._reported.wait()

    def output(self, attempt: Attempt, replica: ReplicaName = MASTER, stream: int = 0) -> str:
        log = self.engine.log(attempt, replica)
        return log.read(stream, 0, log.size(stream)).decode()

    async def wait_for_output(
        self, attempt: Attempt, text: str, replica: ReplicaName = MASTER, stream: int = 0
    ) -> str:
        """Wait until it has printed this text. Returns all its output."""
        async with asyncio.timeout(TIMEOUT):
            async for _ in self.engine.follow(attempt):
                output = self.output(attempt, replica, stream)
                if text in output:
                    return output
        raise AssertionError

    async def _listen(self) -> None:
        async for report in self.engine.reports():
            async with self._reported:
                self.reports.append(report)
                self._reported.notify_all()
