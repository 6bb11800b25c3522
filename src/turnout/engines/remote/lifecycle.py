"""Ends that no runner reports: what the cluster says of gangs whose runners do not report, have ended or never started.

What a runner reports wins over what the cluster says. A cluster's list may be incomplete, so a gang that is missing in
it is looked up by its handle, and is lost only if the cluster answers that it does not know it.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from turnout.engines import Unreachable
from turnout.engines.remote.attempt import Member, RemoteAttempt
from turnout.engines.remote.cluster import Cluster, ClusterJob, EndKind, Phase
from turnout.engines.remote.records import Fact, Over
from turnout.job import Attempt, Cause, Pending, Report

_log = logging.getLogger(__name__)

_SETTLE_SECONDS = 15.0
"""How long a runner of a gang that has ended, by what the cluster says, has to answer a ping."""
_SILENT_SECONDS = 45.0
"""A runner that has not called for so long may be gone: the cluster is asked. Runners call every 25 s at least."""
_LOST_SECONDS = 600.0
"""A runner that is silent for so long while others of its gang call is lost, even if the cluster still has the gang."""
_CHECK_SECONDS = 15.0
_RETRY_SECONDS = 5.0
_LEAVING_CHECKS = 6
_WHY_SECONDS = 30.0
"""How long the cluster is asked why it ended a runner."""

CAUSES = {
    EndKind.EXITED: Cause.LOST,
    EndKind.CANCELLED: Cause.STOPPED,
    EndKind.TIME_LIMIT: Cause.TIME_LIMIT,
    EndKind.OUT_OF_MEMORY: Cause.OUT_OF_MEMORY,
    EndKind.NODE_LOST: Cause.LOST,
    EndKind.PREEMPTED: Cause.PREEMPTED,
    EndKind.FAILED: Cause.REFUSED,
}
"""The cause of a replica's end, if its runner reported none."""
_LOST_TRACK = "the cluster lost track of it, as after a crash of its controller, and ended it"


class Write(Protocol):
    def __call__(self, attempt: RemoteAttempt, *facts: Fact) -> Awaitable[None]: ...


class Lifecycle:
    def __init__(
        self,
        cluster: Cluster,
        attempts: Mapping[Attempt, RemoteAttempt],
        report: Callable[[Report], None],
        write: Write,
        gang_seconds: float,
    ) -> None:
        self._cluster = cluster
        self._attempts = attempts
        self._report = report
        self._write = write
        self._gang_seconds = gang_seconds
        self.trouble = ""
        """Why the cluster cannot be reached at the moment."""
        self._clearing: dict[tuple[str, str], asyncio.Event] = {}
        """By handle and name of gangs whose runners were told to leave: set when the cluster lists it as ended."""
        self.on_runner_gone: Callable[[RemoteAttempt], None] = lambda attempt: None

    def is_placed(self, handle: str) -> bool:
        return not handle or self._cluster.is_placed(handle)

    async def end(
        self, attempt: RemoteAttempt, member: Member, cause: Cause, message: str, *, gone: bool
    ) -> bool:
        """Ends a replica, unless its end is known. Returns whether it did.

        `gone`: its runner is not there (any more), so it cannot start the program again.
        """
        async with attempt.lock:
            if member.over:
                return False
            over = Over(
                str(member.name), member.restarts, time.time_ns(), cause, message=message, runner_gone=gone
            )
            await self._write(attempt, over)
            attempt.apply(over)
        report = attempt.ended(member)
        if report:
            self._report(report)
        attempt.wake_all()
        if gone:
            self.on_runner_gone(attempt)
        return True

    async def cancel(self, attempt: RemoteAttempt) -> None:
        """Tells the cluster to end the gang, if it has it."""
        if attempt.handle:
            await self.cancel_handle(attempt.handle, attempt.name)

    async def cancel_handle(self, handle: str, name: str) -> None:
        """Repeats it until the cluster has heard it. If the handle has gone to another gang, that one stays."""
        while True:
            try:
                found = await self._cluster.look(handle)
                if found is None or found.name == name:
                    await self._cluster.cancel(handle)
                return
            except Unreachable as error:
                self.trouble = error.message
                await asyncio.sleep(_RETRY_SECONDS)

    async def _look(self, attempt: RemoteAttempt) -> ClusterJob | None:
        """A cluster that crashed may give the handle of a gang that it has lost to another one."""
        found = await self._cluster.look(attempt.handle) if attempt.handle else None
        return found if found and found.name == attempt.name else None

    async def clear(self, attempt: RemoteAttempt) -> None:
        """After its runners were told to leave: ends on the cluster what is left of the gang."""
        key = (attempt.handle, attempt.name)
        ended = self._clearing.setdefault(key, asyncio.Event())
        try:
            if not await self._is_listed_as_ended(attempt, ended):
                await self._end_rest(attempt)
            await self._forget(attempt.handle)
        finally:
            self._clearing.pop(key, None)

    async def _end_rest(self, attempt: RemoteAttempt) -> None:
        for _ in range(_LEAVING_CHECKS):
            try:
                found = await self._look(attempt)
            except Unreachable as error:
                self.trouble = error.message
            else:
                if found is None or found.phase is Phase.ENDED:
                    return
                if found.phase is Phase.PENDING:
                    break
            await asyncio.sleep(_RETRY_SECONDS)
        await self.cancel(attempt)

    async def _is_listed_as_ended(self, attempt: RemoteAttempt, ended: asyncio.Event) -> bool:
        """Waits for the next lists: one for all gangs is cheaper than a question for each."""
        try:
            async with asyncio.timeout(_RETRY_SECONDS if attempt.handle else 0):
                await ended.wait()
        except TimeoutError:
            return False
        return True

    async def _forget(self, handle: str) -> None:
        while handle:
            try:
                await self._cluster.forget(handle)
                return
            except Unreachable as error:
                self.trouble = error.message
                await asyncio.sleep(_RETRY_SECONDS)

    # What the cluster lists.

    async def watch(self) -> None:
        while True:
            try:
                async for jobs in self._cluster.watch():
                    self.trouble = ""
                    await self._take_list(jobs)
            except Unreachable as error:
                if not self.trouble:
                    _log.warning("cluster: %s", error.message)
                self.trouble = error.message
            except Exception:  # noqa: BLE001 (every job of the cluster depends on this task)
                _log.exception("the cluster cannot be watched; trying again")
            await asyncio.sleep(_RETRY_SECONDS)

    async def _take_list(self, jobs: list[ClusterJob]) -> None:
        held = {(one.handle, one.name): one for one in self._attempts.values() if one.handle}
        names = {one.name for one in self._attempts.values()}
        for job in jobs:
            clearing = self._clearing.get((job.handle, job.name))
            if clearing:
                if job.phase is Phase.ENDED:
                    clearing.set()
                continue
            attempt = held.get((job.handle, job.name))
            if attempt and not attempt.leaving:
                attempt.listed_at = time.monotonic()
                await self._listed(attempt, job)
            elif attempt is None and job.is_own and job.name not in names:
                # The service was killed before it had removed it.
                await self._cluster.cancel(job.handle)
                await self._cluster.forget(job.handle)

    async def _listed(self, attempt: RemoteAttempt, job: ClusterJob) -> None:
        match job.phase:
            case Phase.PENDING if all(member.instance for member in attempt.members.values()):
                # The start that all have claimed is over for the cluster: it crashed, or has put the gang back.
                await self._cluster_ended(attempt, job._replace(end=EndKind.NODE_LOST, why=_LOST_TRACK))
            case Phase.PENDING:
                self._waits(attempt, job.why)
                await self._take_gone(attempt, job)
            case Phase.RUNNING:
                attempt.cluster_ended_at = None
                if not attempt.claimed:
                    self._waits(attempt, f"its runners are starting on {job.nodes}" if job.nodes else "")
                await self._take_gone(attempt, job)
            case Phase.ENDED:
                await self._cluster_ended(attempt, job)

    def _waits(self, attempt: RemoteAttempt, why: str) -> None:
        if attempt.waits_because != why:
            attempt.waits_because = why
            self._report(Pending(attempt.id, why))

    async def _take_gone(self, attempt: RemoteAttempt, job: ClusterJob) -> None:
        """Runners that have ended, while others of the gang may go on."""
        for member in attempt.members.values():
            if str(member.name) not in job.gone or (member.has_runner and _may_answer(member)):
                continue
            if not member.over:
                await self._end_by(attempt, member, job)
            elif member.has_runner:
                member.gone = True
                self.on_runner_gone(attempt)

    async def _cluster_ended(self, attempt: RemoteAttempt, job: ClusterJob) -> None:
        if attempt.cluster_ended_at is None:
            attempt.cluster_ended_at = time.monotonic()
        for member in attempt.members.values():
            if not member.over and not (member.instance and _may_answer(member)):
                await self._end_by(attempt, member, job)

    async def _end_by(self, attempt: RemoteAttempt, member: Member, job: ClusterJob) -> None:
        kind, cause, words = _cause(attempt, member, job)
        if kind is EndKind.EXITED:
            words = "its runner ended without a report"
            if not member.instance:
                cause = Cause.REFUSED
                words = "its runner ended before it reached the service"
                with contextlib.suppress(Unreachable):
                    last = await self._cluster.last_words(job.handle, member.name)
                    words = f"{words}: {last}" if last else words
        await self.end(attempt, member, cause, words, gone=True)

    # Runners that are silent.

    async def check_contact(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            for attempt in list(self._attempts.values()):
                try:
                    await self._check(attempt)
                except Unreachable as error:
                    self.trouble = error.message
                except Exception:  # noqa: BLE001 (as in `watch`)
                    _log.exception("cannot check %s", attempt.id)

    async def _check(self, attempt: RemoteAttempt) -> None:
        now = time.monotonic()
        if attempt.leaving or attempt.over:
            await self._check_saving(attempt, now)
            return
        await self._check_gang(attempt)
        live = [member for member in attempt.members.values() if not member.over]
        silent = [one for one in live if not one.instance or now - one.heard_at > _SILENT_SECONDS]
        pinged = any(one.pinged_at > one.heard_at for one in live)
        if not attempt.handle or not (silent or pinged):
            return
        await self._end_lost(attempt, silent, now)
        if attempt.cluster_ended_at is None and not pinged and now - attempt.listed_at < _SILENT_SECONDS:
            return  # the cluster has it, and lists its end too
        found = await self._look(attempt)
        if found is not None:
            if found.phase is Phase.ENDED:
                await self._cluster_ended(attempt, found)
            else:
                await self._take_gone(attempt, found)
            return
        if attempt.cluster_ended_at is None:
            # It is asked once more before anything is concluded.
            attempt.cluster_ended_at = now
            return
        for member in silent:
            unknown = f"its runner is silent, and the cluster does not know {attempt.handle} any more"
            await self.end(attempt, member, Cause.LOST, unknown, gone=True)

    async def _check_saving(self, attempt: RemoteAttempt, now: float) -> None:
        """Nobody waits for the outputs of a runner that is gone."""
        saving = [one for one in attempt.members.values() if one.saving and one.has_runner]
        silent = [one for one in saving if now - one.heard_at > _SILENT_SECONDS]
        if not silent or attempt.leaving:
            return
        found = await self._look(attempt)
        if found is None or found.phase is Phase.ENDED:
            for member in silent:
                member.gone = True
            self.on_runner_gone(attempt)

    async def _end_lost(self, attempt: RemoteAttempt, silent: list[Member], now: float) -> None:
        """A cluster may not notice that one of several runners is gone. If all are silent, it is the network."""
        others = [member for member in attempt.members.values() if member.runs and member not in silent]
        for member in silent if others else ():
            if member.instance and now - member.heard_at > _LOST_SECONDS:
                words = f"its runner has not called for {_LOST_SECONDS:g} s, while others of its job have"
                await self.end(attempt, member, Cause.LOST, words, gone=True)

    async def _check_gang(self, attempt: RemoteAttempt) -> None:
        """Gives up a gang whose members do not all come."""
        late = time.monotonic() - attempt.first_claim_at > self._gang_seconds
        if not attempt.first_claim_at or not late or attempt.complete:
            return
        missing = [str(m.name) for m in attempt.members.values() if m.arrival is None and not m.over]
        if not missing:
            return
        words = f"{', '.join(missing)} did not come within {self._gang_seconds:g} s of the first replica"
        for member in attempt.members.values():
            if not member.began:
                await self.end(attempt, member, Cause.LOST, words, gone=not member.instance)
        await self.cancel(attempt)

    # Runners that the cluster ended.

    async def why_terminated(self, attempt: RemoteAttempt, member: Member) -> tuple[Cause, str]:
        """The cause of the end of a runner that got a signal that nobody here sent."""
        deadline = time.monotonic() + _WHY_SECONDS
        trouble = ""
        while time.monotonic() < deadline:
            try:
                found = await self._look(attempt)
                trouble = ""
            except Unreachable as error:
                trouble = error.message
            else:
                if found is None:
                    break
                gone = str(member.name) in found.gone
                if found.end is not None or gone:
                    kind, cause, why = _cause(attempt, member, found)
                    if kind is not EndKind.EXITED:
                        return cause, why
                if gone or found.phase is Phase.ENDED:
                    break
            await asyncio.sleep(1)
        why = f"cannot be asked why: {trouble}" if trouble else "does not say why"
        return Cause.LOST, f"the cluster ended its runner, and {why}"


def _cause(attempt: RemoteAttempt, member: Member, job: ClusterJob) -> tuple[EndKind, Cause, str]:
    """Why a runner ended, in the cluster's words."""
    kind, why = job.gone.get(str(member.name)) or (job.end or EndKind.EXITED, job.why)
    if kind is not EndKind.PREEMPTED and attempt.started_again(job.waited):
        return EndKind.NODE_LOST, Cause.LOST, _LOST_TRACK
    return kind, CAUSES[kind], why


def _may_answer(member: Member) -> bool:
    """Whether its runner may be alive: it is told to call, and has some time for it."""
    now = time.monotonic()
    if member.heard_at >= member.pinged_at:
        member.pinged_at = now
        member.order("ping")
        return True
    return now - member.pinged_at < _SETTLE_SECONDS
