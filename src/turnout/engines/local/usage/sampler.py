"""Looks at what runs: reports a sample of each replica once a period, and gangs that have hung.

Each attempt has a timer of its own, from its first replica's start to its last one's end, so nothing happens while
nothing runs. Measuring is done by one thread: it takes longer the more processes there are.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from turnout.engines.local.usage import GpuUsage, Usage, of_gpus, of_tree
from turnout.job import Attempt, Hung, ReplicaName, Report, Sample, Sampled
from turnout.runner.allowance import Allowance

_log = logging.getLogger(__name__)

_UNLIMITED = Allowance()
_LOOKS = 4
"""So many times in the time that a gang may do nothing."""
_IDLE = 0.001
"""Of one core: what a thread that only wakes up and sleeps again may use, and still be idle."""


class Machine(NamedTuple):
    cores: int
    memory: int
    gpus: bool
    """Whether GPUs are real ones."""


class _Member:
    def __init__(self, pid: int, at: int) -> None:
        self.pid = pid
        self.at = at
        """Since when `cpu` counts: the last sample, at first the start."""
        self.cpu = 0.0
        self.usage: Usage | None = None
        self.gpu: GpuUsage | None = None


class _Gang:
    def __init__(self, attempt: Attempt, allowance: Allowance, now: float) -> None:
        self.attempt = attempt
        self.allowance = allowance
        self.members: dict[ReplicaName, _Member] = {}
        self.sampled = now
        self.timer: asyncio.TimerHandle | None = None
        self.idle_since = now
        self.done: tuple[float, int] = (0.0, 0)
        """CPU time and I/O of all members then."""
        self.hung = False


class Sampler:
    """`tell` is called on the loop that `began` was called on. A `period` of 0: no samples."""

    def __init__(self, period: float, machine: Machine, tell: Callable[[Report], None]) -> None:
        self._period = period
        self._machine = machine
        self._tell = tell
        self._gangs: dict[Attempt, _Gang] = {}
        self._allowances: dict[Attempt, Allowance] = {}
        self._thread = ThreadPoolExecutor(1, "sampler")

    def expect(self, attempt: Attempt, allowance: Allowance | None) -> None:
        """What its replicas may use, once they begin."""
        if allowance:
            self._allowances[attempt] = allowance

    def began(self, attempt: Attempt, replica: ReplicaName, pid: int, at: int) -> None:
        """May be told again."""
        gang = self._gangs.get(attempt)
        if gang is None:
            allowance = self._allowances.get(attempt, _UNLIMITED)
            gang = self._gangs[attempt] = _Gang(attempt, allowance, time.monotonic())
            self._set_timer(gang)
        if replica not in gang.members:
            gang.members[replica] = _Member(pid, at)
            gang.idle_since = time.monotonic()

    def ended(self, attempt: Attempt, replica: ReplicaName) -> None:
        gang = self._gangs.get(attempt)
        if gang is None:
            return
        gang.members.pop(replica, None)
        if not gang.members:
            self._drop(gang)

    def forget(self, attempt: Attempt) -> None:
        self._allowances.pop(attempt, None)
        gang = self._gangs.get(attempt)
        if gang:
            self._drop(gang)

    def close(self) -> None:
        for gang in list(self._gangs.values()):
            self._drop(gang)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _drop(self, gang: _Gang) -> None:
        del self._gangs[gang.attempt]
        if gang.timer:
            gang.timer.cancel()

    def _set_timer(self, gang: _Gang) -> None:
        """For the next sample or the next look whether it has hung, whichever comes first."""
        waits: list[float] = []
        if self._period:
            waits.append(max(gang.sampled + self._period - time.monotonic(), 0))
        if gang.allowance.hang_seconds and not gang.hung:
            waits.append(gang.allowance.hang_seconds / _LOOKS)
        if waits:
            gang.timer = asyncio.get_running_loop().call_later(min(waits), self._look, gang)

    def _look(self, gang: _Gang) -> None:
        loop = asyncio.get_running_loop()
        members = list(gang.members.items())

        def looked(future: Future[None]) -> None:
            # The loop may have ended meanwhile, and then nobody wants to know.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._looked, gang, future)

        self._thread.submit(self._measure, gang.allowance, members).add_done_callback(looked)

    def _measure(self, allowance: Allowance, members: list[tuple[ReplicaName, _Member]]) -> None:
        for name, member in members:
            member.usage = of_tree(member.pid)
            member.gpu = of_gpus(allowance.devices(name)) if self._machine.gpus else None

    def _looked(self, gang: _Gang, future: Future[None]) -> None:
        if self._gangs.get(gang.attempt) is not gang:
            return
        now = time.monotonic()
        trouble = future.exception()
        if trouble:
            _log.error("what %s uses cannot be measured", gang.attempt, exc_info=trouble)
        elif gang.allowance.hang_seconds and not gang.hung:
            self._check(gang, gang.allowance.hang_seconds, now)
        # A timer may come a little early.
        if self._period and now >= gang.sampled + 0.9 * self._period:
            self._sample(gang, now)
        self._set_timer(gang)

    def _sample(self, gang: _Gang, now: float) -> None:
        gang.sampled = now
        at = time.time_ns()
        samples = tuple(
            self._sampled(gang.allowance, name, member, member.usage, at)
            for name, member in gang.members.items()
            if member.usage and at > member.at
        )
        if samples:
            self._tell(Sampled(gang.attempt, samples))

    def _sampled(
        self, allowance: Allowance, name: ReplicaName, member: _Member, usage: Usage, at: int
    ) -> Sample:
        cores = min(allowance.cpu.get(name.role, self._machine.cores), self._machine.cores)
        memory = min(allowance.memory.get(name.role, self._machine.memory), self._machine.memory)
        used = max(usage.cpu - member.cpu, 0) / ((at - member.at) / 1e9)
        member.cpu, member.at = usage.cpu, at
        return Sample(
            name,
            at,
            cpu=min(100 * used / cores, 100),
            memory=min(100 * usage.memory / memory, 100),
            gpu=member.gpu.busy if member.gpu else None,
            gpu_memory=member.gpu.memory if member.gpu else None,
        )

    def _check(self, gang: _Gang, allowed: float, now: float) -> None:
        usages = [member.usage for member in gang.members.values() if member.usage]
        cpu, io = sum(usage.cpu for usage in usages), sum(usage.io for usage in usages)
        busy = any(member.gpu and member.gpu.busy for member in gang.members.values())
        # Less CPU time than before: a process has gone, which is something too.
        idle = 0 <= cpu - gang.done[0] <= _IDLE * (now - gang.idle_since) and io == gang.done[1] and not busy
        if not idle:
            gang.idle_since, gang.done = now, (cpu, io)
        elif now - gang.idle_since >= allowed:
            gang.hung = True
            message = f"no process of the job has used CPU time or done I/O for {now - gang.idle_since:.0f} s"
            self._tell(Hung(gang.attempt, time.time_ns(), message))
