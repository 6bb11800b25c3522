"""Measures running replicas: reports a sample of each once a period, and gangs that hang.

Each attempt has a timer of its own, from its first replica's start to its last one's end, so nothing happens while
nothing runs. One thread measures, because that takes longer the more processes there are.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from turnout.engines.local.usage.measure import GpuUsage, Usage, measure_gpus, measure_tree
from turnout.job import Attempt, Hung, ReplicaName, Report, Sample, Sampled
from turnout.job.resources import CORE
from turnout.runner.allowance import Allowance

_log = logging.getLogger(__name__)

_UNLIMITED = Allowance()
_CHECKS = 4
"""How often a gang is checked in the time that it may do nothing."""
_IDLE = 0.001
"""The part of one core that an idle gang may use: a thread that only wakes up and sleeps again is idle."""


class Hardware(NamedTuple):
    cores: int
    memory: int
    gpus: bool
    """Whether there are GPUs, and not simulated ones."""


class _ReplicaUsage:
    def __init__(self, pid: int, at: int) -> None:
        self.pid = pid
        self.at = at
        """The time of the last sample, before the first one that of the start."""
        self.since = time.monotonic() - max(0, time.time_ns() - at) / 1e9
        """The same time on the steady clock. `cpu` is the CPU time used until then."""
        self.cpu = 0.0
        self.usage: Usage | None = None
        self.gpu: GpuUsage | None = None


class _GangUsage:
    def __init__(self, attempt: Attempt, allowance: Allowance, now: float) -> None:
        self.attempt = attempt
        self.allowance = allowance
        self.members: dict[ReplicaName, _ReplicaUsage] = {}
        self.sampled = now
        self.timer: asyncio.TimerHandle | None = None
        self.idle_since = now
        self.done: tuple[float, int] = (0.0, 0)
        """CPU time and I/O of all members at `idle_since`."""
        self.hung = False


class Sampler:
    """`report` is called on the loop on which `started` was called. A `period` of 0: no samples."""

    def __init__(self, period: float, hardware: Hardware, report: Callable[[Report], None]) -> None:
        self._period = period
        self._hardware = hardware
        self._report = report
        self._gangs: dict[Attempt, _GangUsage] = {}
        self._allowances: dict[Attempt, Allowance] = {}
        self._thread = ThreadPoolExecutor(1, "sampler")

    def expect(self, attempt: Attempt, allowance: Allowance | None) -> None:
        """What the replicas of an attempt may use. Call it before they start."""
        if allowance:
            self._allowances[attempt] = allowance

    def started(self, attempt: Attempt, replica: ReplicaName, pid: int, at: int) -> None:
        """May be called again for the same replica."""
        gang = self._gangs.get(attempt)
        if gang is None:
            allowance = self._allowances.get(attempt, _UNLIMITED)
            gang = self._gangs[attempt] = _GangUsage(attempt, allowance, time.monotonic())
            self._set_timer(gang)
        if replica not in gang.members:
            gang.members[replica] = _ReplicaUsage(pid, at)
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

    def _drop(self, gang: _GangUsage) -> None:
        del self._gangs[gang.attempt]
        if gang.timer:
            gang.timer.cancel()

    def _set_timer(self, gang: _GangUsage) -> None:
        """For the next sample or the next check for a hang, whichever comes first."""
        waits: list[float] = []
        if self._period:
            waits.append(max(gang.sampled + self._period - time.monotonic(), 0))
        if gang.allowance.hang_seconds and not gang.hung:
            waits.append(gang.allowance.hang_seconds / _CHECKS)
        if waits:
            gang.timer = asyncio.get_running_loop().call_later(min(waits), self._measure, gang)

    def _measure(self, gang: _GangUsage) -> None:
        loop = asyncio.get_running_loop()
        members = list(gang.members.items())

        def done(future: Future[None]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._measured, gang, future)

        self._thread.submit(self._measure_members, gang.allowance, members).add_done_callback(done)

    def _measure_members(
        self, allowance: Allowance, members: list[tuple[ReplicaName, _ReplicaUsage]]
    ) -> None:
        for name, member in members:
            member.usage = measure_tree(member.pid)
            member.gpu = measure_gpus(allowance.devices(name)) if self._hardware.gpus else None

    def _measured(self, gang: _GangUsage, future: Future[None]) -> None:
        if self._gangs.get(gang.attempt) is not gang:
            return
        now = time.monotonic()
        error = future.exception()
        if error:
            _log.error("cannot measure the usage of %s", gang.attempt, exc_info=error)
        elif gang.allowance.hang_seconds and not gang.hung:
            self._check_hang(gang, gang.allowance.hang_seconds, now)
        # A timer may fire a little early.
        if self._period and now >= gang.sampled + 0.9 * self._period:
            self._report_samples(gang, now)
        self._set_timer(gang)

    def _report_samples(self, gang: _GangUsage, now: float) -> None:
        gang.sampled = now
        samples = tuple(
            self._sample(gang.allowance, name, member, member.usage, now)
            for name, member in gang.members.items()
            if member.usage and now > member.since
        )
        if samples:
            self._report(Sampled(gang.attempt, samples))

    def _sample(
        self, allowance: Allowance, name: ReplicaName, member: _ReplicaUsage, usage: Usage, now: float
    ) -> Sample:
        limit = allowance.millicores.get(name.role)
        cores = self._hardware.cores if limit is None else min(limit / CORE, self._hardware.cores)
        memory = min(allowance.memory.get(name.role, self._hardware.memory), self._hardware.memory)
        used = max(usage.cpu - member.cpu, 0) / (now - member.since)
        at = max(time.time_ns(), member.at + 1)
        member.cpu, member.at, member.since = usage.cpu, at, now
        return Sample(
            name,
            at,
            cpu=min(100 * used / cores, 100),
            memory=min(100 * usage.memory / memory, 100),
            gpu=member.gpu.busy if member.gpu else None,
            gpu_memory=member.gpu.memory if member.gpu else None,
        )

    def _check_hang(self, gang: _GangUsage, allowed: float, now: float) -> None:
        usages = [member.usage for member in gang.members.values() if member.usage]
        cpu, io = sum(usage.cpu for usage in usages), sum(usage.io for usage in usages)
        busy = any(member.gpu and member.gpu.busy for member in gang.members.values())
        # Less CPU time than before means that a process has ended, which is activity too.
        idle = 0 <= cpu - gang.done[0] <= _IDLE * (now - gang.idle_since) and io == gang.done[1] and not busy
        if not idle:
            gang.idle_since, gang.done = now, (cpu, io)
        elif now - gang.idle_since >= allowed:
            gang.hung = True
            message = f"no process of the job has used CPU time or done I/O for {now - gang.idle_since:.0f} s"
            self._report(Hung(gang.attempt, time.time_ns(), message))
