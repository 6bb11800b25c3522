"""An engine beyond this machine: a cluster runs a runner for each replica, and the runners report to the service.

`runner_calls.py` is the half that runners call; this is the half that the controller calls. Both change an attempt only
by facts that are on disk first (`records.py`).
"""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from turnout import chaos, pools
from turnout.engines import Refused, Traits, Unreachable
from turnout.engines.log_files import FileLog
from turnout.engines.remote.attempt import Member, RemoteAttempt
from turnout.engines.remote.cluster import CheckResult, Cluster, Gang, RunnerCall
from turnout.engines.remote.exports import LogExports
from turnout.engines.remote.lifecycle import Lifecycle
from turnout.engines.remote.logs import ReplicaLogs
from turnout.engines.remote.nodes import Nodes, NodeUse
from turnout.engines.remote.records import Accepted, Again, Fact, Over, Records
from turnout.engines.remote.runner_calls import RunnerCalls
from turnout.engines.remote.saving import Saving
from turnout.engines.remote.settings import RemoteSettings
from turnout.engines.remote.terminals import RemoteTerminal, RemoteTerminals
from turnout.engines.remote.transfers import Transfers
from turnout.errors import TurnoutError, WrongState
from turnout.job import (
    Attempt,
    Capacity,
    Cause,
    Drained,
    Ended,
    Launch,
    Pending,
    Replica,
    ReplicaName,
    Report,
    Size,
    Submitted,
    Synced,
)
from turnout.storage import Storage

_log = logging.getLogger(__name__)

_FIRST_RETRY = 1.0
_LONGEST_RETRY = 15.0
_LEAVE_SECONDS = 60.0
"""How long runners have to leave before the cluster is told to end them."""
_CONNECT_SECONDS = 5.0


class RemoteEngine:
    def __init__(self, settings: RemoteSettings, cluster: Cluster, storage: Storage) -> None:
        self.traits = Traits(cluster.kind, settings.pending)
        self._settings = settings
        self._cluster = cluster
        self._records = Records(settings.directory)
        self._attempts: dict[Attempt, RemoteAttempt] = {}
        self._stopped_before_start: set[Attempt] = set()
        self._reports: asyncio.Queue[Report] = asyncio.Queue()
        self._logs = ReplicaLogs(settings.paths, settings.log_bytes)
        self._terminals = RemoteTerminals()
        self.drained = False
        """Whether an operator wants no new jobs on it."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._lifecycle = Lifecycle(
            cluster, self._attempts, self._reports.put_nowait, self._write, settings.gang_seconds
        )
        self._nodes = Nodes(cluster, self._attempts)
        self._exports = LogExports(storage, settings.paths)
        self._saving = Saving(self._attempts, self._reports.put_nowait, self._exports)
        self._lifecycle.on_runner_gone = self._saving.check_lost
        self.calls = RunnerCalls(
            settings,
            self._attempts,
            self._reports.put_nowait,
            self._write,
            self._logs,
            Transfers(storage),
            self._terminals,
            self._lifecycle,
            self._saving,
        )

    def remember(self, submitted: Mapping[Attempt, str]) -> None:
        """The records have all it needs."""

    async def open(self) -> None:
        await pools.service.run(pools.OWN, self._records.prepare)
        await self._cluster.open()
        recorded = await pools.service.run(pools.OWN, self._records.all)
        for attempt, facts in recorded.items():
            self._attempts[attempt] = RemoteAttempt.recorded(facts, self._records.of(attempt))
        self.drained = await pools.service.run(pools.OWN, self._drained_file.exists)
        self._reports.put_nowait(Capacity(()))
        self._reports.put_nowait(Drained(self.drained))
        for one in self._attempts.values():
            self._report_again(one)
            self._order_again(one)
            self._exports.begin(one.launch)
        self._reports.put_nowait(Synced(frozenset(self._attempts)))
        for one in self._attempts.values():
            if not one.handle and not one.over:
                self._spawn(self._submit(one))
        self._spawn(self._lifecycle.watch())
        self._spawn(self._lifecycle.check_contact())

    def _report_again(self, attempt: RemoteAttempt) -> None:
        if attempt.handle:
            self._reports.put_nowait(Submitted(attempt.id, attempt.handle))
        for member in attempt.members.values():
            for report in (attempt.started(member), attempt.ended(member)):
                if report:
                    self._reports.put_nowait(report)

    def _order_again(self, attempt: RemoteAttempt) -> None:
        """Runners may not have heard of a restart that is recorded. They obey it once."""
        for member in attempt.members.values():
            if member.restarts and member.runs and member.began is None:
                member.order("restart", restarts=member.restarts)

    def stopping(self) -> None:
        """Runners go on, and try to reach the next service."""
        self.calls.close()

    async def close(self) -> None:
        self.calls.close()
        self._terminals.close()
        self._exports.close()
        await self._nodes.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._cluster.close()

    async def reports(self) -> AsyncIterator[Report]:
        while True:
            yield await self._reports.get()

    def runtime(self, name: str) -> str:
        python = self._settings.pythons.get(name) or self._settings.python
        return f"{python} on the nodes of {self._settings.name}"

    def refuses(self, launch: Launch) -> str:
        """Why no gang like this can ever run here; empty: it may."""
        return self._settings.refuses(launch) or self._cluster.refuses(launch)

    # Start and stop.

    async def start(self, launch: Launch) -> None:
        if launch.attempt in self._attempts:
            return
        if launch.attempt in self._stopped_before_start:
            self._report_not_started(launch, Cause.STOPPED, "it was stopped before it started")
            return
        why = self.refuses(launch)
        if why:
            raise Refused(why)
        attempt, launched = RemoteAttempt.new(
            launch, self._records.of(launch.attempt), self._settings.call.digest
        )
        self._attempts[launch.attempt] = attempt
        try:
            await self._write(attempt, launched)
        except OSError as error:
            del self._attempts[launch.attempt]
            raise Unreachable(
                f"the record of {launch.attempt} cannot be written: {error.strerror}"
            ) from error
        self._exports.begin(launch)
        self._spawn(self._submit(attempt))

    async def _submit(self, attempt: RemoteAttempt) -> None:
        """Until the cluster has taken or refused the gang, or it was stopped."""
        pause = _FIRST_RETRY
        while not (attempt.over or attempt.leaving or attempt.handle):
            try:
                handle = await self._cluster.submit(Gang(attempt.name, attempt.launch, self._call(attempt)))
                chaos.point("remote.submitted")
            except Unreachable as error:
                self._waits(attempt, f"{self._settings.name} cannot be reached: {error.message}")
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_RETRY)
                continue
            except Exception as error:  # noqa: BLE001 (nobody awaits this task: the job's end has to carry the error)
                if not isinstance(error, TurnoutError):
                    _log.exception("cannot submit %s", attempt.id)
                await self._end_all(attempt, Cause.REFUSED, str(error))
                return
            async with attempt.lock:
                if attempt.handle:
                    if attempt.handle != handle:
                        _log.warning("%s was submitted twice: %s is cancelled", attempt.id, handle)
                        self._spawn(self._lifecycle.cancel_handle(handle, attempt.name))
                    return
                await self._write(attempt, Accepted(handle))
                attempt.apply(Accepted(handle))
            self._reports.put_nowait(Submitted(attempt.id, handle))
            if attempt.over or attempt.leaving:
                await self._lifecycle.cancel(attempt)
            return

    def _waits(self, attempt: RemoteAttempt, why: str) -> None:
        if attempt.waits_because != why:
            attempt.waits_because = why
            self._reports.put_nowait(Pending(attempt.id, why))

    def _call(self, attempt: RemoteAttempt) -> RunnerCall:
        return self._settings.call._replace(token=attempt.token)

    async def restart(self, launch: Launch, replica: ReplicaName, restarts: int) -> None:
        attempt = self._attempts.get(launch.attempt)
        if attempt is None:
            raise Refused("the gang is gone")
        member = attempt.members[replica]
        if restarts <= member.restarts:
            return
        async with attempt.lock:
            if restarts <= member.restarts:
                return
            fact: Fact = Again(str(replica), restarts)
            if not member.has_runner:
                gone = "its runner is gone"
                fact = Over(
                    str(replica), restarts, time.time_ns(), Cause.LOST, message=gone, runner_gone=True
                )
            await self._write(attempt, fact)
            attempt.apply(fact)
        if isinstance(fact, Over):
            self._report_end(attempt, member)
        else:
            member.order("restart", restarts=restarts)

    async def stop(self, attempt: Attempt, grace: float, replicas: tuple[ReplicaName, ...] = ()) -> None:
        one = self._attempts.get(attempt)
        if one is None:
            self._stopped_before_start.add(attempt)
            return
        early: list[Member] = []
        for member in one.members.values():
            if member.over or (replicas and member.name not in replicas):
                continue
            if one.complete:
                member.order("stop", grace=grace)
            else:
                early.append(member)
        for member in early:
            # Its runner, if it has come already, has no plan yet, and learns from its next call that it gets none.
            await self._end(one, member, Cause.STOPPED, "it was stopped before it started", gone=False)
        if one.over and not one.claimed:
            self._spawn(self._lifecycle.cancel(one))

    async def _end_all(self, attempt: RemoteAttempt, cause: Cause, message: str) -> None:
        for member in attempt.members.values():
            await self._end(attempt, member, cause, message, gone=True)

    async def _end(
        self, attempt: RemoteAttempt, member: Member, cause: Cause, message: str, *, gone: bool
    ) -> None:
        if await self._lifecycle.end(attempt, member, cause, message, gone=gone):
            member.wake.set()

    def _report_end(self, attempt: RemoteAttempt, member: Member) -> None:
        report = attempt.ended(member)
        if report:
            self._reports.put_nowait(report)

    def _report_not_started(self, launch: Launch, cause: Cause, message: str) -> None:
        for replica, _ in launch.replicas():
            self._reports.put_nowait(Ended(launch.attempt, replica, time.time_ns(), cause, message=message))

    # After the end.

    async def save(self, attempt: Attempt) -> None:
        self._saving.begin(attempt)

    async def forget(self, attempt: Attempt, keep_workspace: bool = False) -> None:
        self._stopped_before_start.discard(attempt)
        self._exports.forget(attempt)
        one = self._attempts.get(attempt)
        if one is None or one.leaving:
            return
        one.leaving = True
        for member in one.members.values():
            member.order("leave", keep=keep_workspace)
        await pools.disk.run(pools.OWN, one.record.remove)
        chaos.point("remote.forgotten")
        self._spawn(self._leave(one))

    async def _leave(self, attempt: RemoteAttempt) -> None:
        """The attempt goes when its runners have had time to leave, and the cluster ends those that are left."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self.calls.left(attempt)
        self._attempts.pop(attempt.id, None)
        self.calls.forget(attempt.id)
        await self._lifecycle.clear(attempt)
        await pools.disk.run(pools.OWN, self._logs.forget, attempt.id)

    async def remove(self, attempts: list[Attempt]) -> None:
        await pools.disk.run(pools.OWN, self._logs.remove, attempts)

    async def attempts_on_disk(self) -> list[Attempt]:
        return await pools.disk.run(pools.OWN, self._logs.attempts)

    # Reads.

    def log(self, attempt: Attempt, replica: ReplicaName) -> FileLog:
        return self._logs.read(attempt, replica)

    def read_scratch_file(self, attempt: Attempt, replica: ReplicaName, path: str, most: int) -> bytes:
        return self._logs.read_file(attempt, replica, path.rpartition("/")[2], most)

    def follow(self, attempt: Attempt) -> AsyncIterator[None]:
        return self.calls.follow(attempt)

    async def shell(self, attempt: Attempt, replica: ReplicaName, size: Size) -> RemoteTerminal:
        one = self._attempts.get(attempt)
        member = one and one.members.get(replica)
        if member is None or not member.runs or member.began is None:
            raise WrongState(f"{replica} is not running")
        terminal = self._terminals.open(attempt, replica)
        member.order("shell", id=terminal.id, columns=size.columns, rows=size.rows)
        return terminal

    async def program_page(self, attempt: Attempt, replica: Replica) -> socket.socket | None:
        one = self._attempts.get(attempt)
        member = one and one.members.get(replica.name)
        arrival = member and member.arrival
        if arrival is None or len(arrival.ports) <= self._settings.ports:
            return None
        family = socket.AF_INET6 if ":" in arrival.address else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                page = (arrival.address, arrival.ports[-1])
                await asyncio.get_running_loop().sock_connect(connection, page)
        except (OSError, TimeoutError):
            connection.close()
            return None
        return connection

    # For operators.

    async def drain(self, on: bool) -> None:
        """Whether new jobs wait. It survives a restart. Raises OSError."""
        await pools.service.run(pools.OWN, self._drained_file.touch if on else self._remove_drained)
        self.drained = on
        self._reports.put_nowait(Drained(on))

    async def nodes(self) -> list[NodeUse]:
        """The nodes of the cluster and what runs there; empty if the cluster does not tell."""
        return await self._nodes.all()

    def check(self) -> AsyncIterator[CheckResult]:
        """What works on the cluster, and what does not."""
        return self._cluster.check(self._settings.call)

    @property
    def _drained_file(self) -> Path:
        return self._settings.directory / "drained"

    def _remove_drained(self) -> None:
        self._drained_file.unlink(missing_ok=True)

    def trouble(self) -> str:
        """Why the cluster cannot be reached at the moment; empty if it can."""
        return self._lifecycle.trouble

    # Facts and tasks.

    async def _write(self, attempt: RemoteAttempt, *facts: Fact) -> None:
        await pools.disk.run(attempt.launch.project, attempt.record.append, *facts)
        for fact in facts:
            chaos.point(f"remote.{type(fact).__name__.lower()}")

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception():
            _log.error("a task of cluster %s failed", self._settings.name, exc_info=task.exception())
