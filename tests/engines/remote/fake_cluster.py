"""A cluster for tests that runs real runners as processes of this machine. It stands for a cluster's own software only.

It can be made to misbehave: to lose the answer to a submit, to start a gang twice, to be away, to list nothing.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from turnout.engines import Refused, Unreachable
from turnout.engines.remote import (
    CheckResult,
    ClusterJob,
    ClusterNode,
    EndKind,
    Gang,
    Gone,
    Phase,
    RunnerCall,
)
from turnout.job import Launch, ReplicaName

_numbers = itertools.count(1000)


@dataclass
class Running:
    handle: str
    gang: Gang
    phase: Phase = Phase.PENDING
    end: EndKind | None = None
    why: str = "waiting for resources"
    processes: dict[ReplicaName, asyncio.subprocess.Process] = field(default_factory=dict)
    copies: list[asyncio.subprocess.Process] = field(default_factory=list)
    """Runners of a second start."""
    waited: float | None = None
    gone: dict[str, Gone] = field(default_factory=dict[str, Gone])


class FakeCluster:
    kind = "fake"

    def __init__(self, scratch: Path, python: str = sys.executable) -> None:
        self.jobs: dict[str, Running] = {}
        self.scratch = scratch
        self.away = ""
        """Why it cannot be reached; empty: it can."""
        self.full = False
        """Gangs stay in its queue."""
        self.lists_nothing = False
        self.forgets: set[str] = set()
        """Handles that it does not know any more."""
        self.forgotten: list[str] = []
        self.looked_at: list[str] = []
        self.is_sole_user = False
        """Whether all its gangs are those of one service."""
        self.unplaced: set[str] = set()
        """Gangs whose runners have to wait."""
        self.loses_answers = 0
        """So many submits succeed, but look as if they had failed."""
        self.refuses_all = ""
        self.starts_twice = False
        self.next_handle = ""
        """The handle of the next gang; empty: a new one."""
        self.all_nodes: list[ClusterNode] = []
        self._python = python
        self._changed = asyncio.Event()
        self._watchers: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def refuses(self, launch: Launch) -> str:
        return ""

    async def submit(self, gang: Gang) -> str:
        self._check()
        known = next((job for job in self.jobs.values() if job.gang.name == gang.name), None)
        if known is None:
            if self.refuses_all:
                raise Refused(self.refuses_all)
            known = Running(self.next_handle or str(next(_numbers)), gang)
            self.jobs[known.handle] = known
            if not self.full:
                await self.start(known)
        if self.loses_answers:
            self.loses_answers -= 1
            raise Unreachable("the answer was lost")
        return known.handle

    async def start(self, job: Running) -> None:
        for replica, _ in job.gang.launch.replicas():
            job.processes[replica] = await self._runner(job, replica)
            if self.starts_twice:
                job.copies.append(await self._runner(job, replica))
        job.phase, job.why = Phase.RUNNING, ""
        task = asyncio.create_task(self._ended(job))
        self._watchers.add(task)
        task.add_done_callback(self._watchers.discard)
        self._changed.set()

    async def _runner(self, job: Running, replica: ReplicaName) -> asyncio.subprocess.Process:
        call = job.gang.runner
        environment = {
            "PATH": os.environ["PATH"],
            "TURNOUT_TOKEN": call.token,
            "TURNOUT_FINGERPRINT": call.fingerprint,
            "TURNOUT_SCRATCH": str(self.scratch),
            "TURNOUT_ENGINE_ID": job.handle,
            "TURNOUT_PATIENCE": str(call.patience),
            "TURNOUT_NODE": "node-a",  # clusters may call a node by another name than its own
        }
        address = call.address(job.gang.launch, replica)
        with (self.scratch / f"{job.handle}-{replica}.out").open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *_limited(job.gang.launch, replica),
                self._python,
                call.archive,
                call.endpoint,
                address,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    async def _ended(self, job: Running) -> None:
        for process in (*job.processes.values(), *job.copies):
            await process.wait()
        job.phase = Phase.ENDED
        job.end = job.end or EndKind.EXITED
        self._changed.set()

    async def cancel(self, handle: str) -> None:
        self._check()
        self.end(handle, EndKind.CANCELLED, "cancelled")

    async def forget(self, handle: str) -> None:
        self._check()
        self.forgotten.append(handle)

    def is_placed(self, handle: str) -> bool:
        return handle not in self.unplaced

    def end(self, handle: str, kind: EndKind, why: str, number: int = signal.SIGTERM) -> None:
        """Ends the runners of a gang, as a cluster does, or takes it out of the queue."""
        job = self.jobs.get(handle)
        if job is None or job.phase is Phase.ENDED:
            return
        job.end, job.why = kind, why
        if job.phase is Phase.PENDING:
            job.phase = Phase.ENDED
        for process in (*job.processes.values(), *job.copies):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
        self._changed.set()

    async def watch(self) -> AsyncGenerator[list[ClusterJob]]:
        while True:
            self._check()
            yield [] if self.lists_nothing else [self._shown(job) for job in self.jobs.values()]
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), 0.5)

    async def look(self, handle: str) -> ClusterJob | None:
        self._check()
        self.looked_at.append(handle)
        job = None if handle in self.forgets else self.jobs.get(handle)
        return job and self._shown(job)

    def _shown(self, job: Running) -> ClusterJob:
        return ClusterJob(
            job.handle,
            job.gang.name,
            job.phase,
            job.why,
            job.end,
            "here",
            job.waited,
            job.gone,
            self.is_sole_user,
        )

    async def last_words(self, handle: str, replica: ReplicaName) -> str:
        try:
            return (self.scratch / f"{handle}-{replica}.out").read_text()[-1000:]
        except OSError:
            return ""

    async def nodes(self) -> list[ClusterNode]:
        self._check()
        return self.all_nodes

    async def check(self, runner: RunnerCall) -> AsyncIterator[CheckResult]:
        yield CheckResult("it is here", ok=not self.away, detail=self.away)

    def _check(self) -> None:
        if self.away:
            raise Unreachable(self.away)

    async def kill_all(self) -> None:
        """At the end of a test: nothing of it stays."""
        for job in self.jobs.values():
            for process in (*job.processes.values(), *job.copies):
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
                    await process.wait()
        for task in self._watchers:
            task.cancel()


def _limited(launch: Launch, replica: ReplicaName) -> list[str]:
    """The cluster enforces the memory limit, here by an rlimit."""
    memory = next(role.resources.memory for name, role in launch.replicas() if name == replica)
    return ["sh", "-c", f'ulimit -d {memory >> 10}; exec "$@"', "limited"] if memory else []
