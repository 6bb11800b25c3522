"""A store in memory that checks each commit as a reader of the service would: what it says never becomes untrue."""

import asyncio
import copy
from collections import defaultdict, deque

from turnout.job import (
    Attempt,
    Event,
    EventKind,
    Job,
    PastAttempt,
    Reason,
    Replica,
    ReplicaState,
    Spec,
    State,
    Submission,
    Trial,
)
from turnout.store import Batch, LiveRecord, StoreError

ORDER = {State.QUEUED: 0, State.PREPARING: 1, State.RUNNING: 2, State.STOPPING: 3}
OVER = 4
CORRECTIONS = {
    # It finished before the stop reached it.
    (Reason.PREEMPTED, Reason.SUCCEEDED),
    (Reason.HUNG, Reason.SUCCEEDED),
    # Its outputs could not be stored.
    (Reason.SUCCEEDED, Reason.STAGING_FAILED),
}


class NoTrials:
    async def of(self, job_id: int) -> list[Trial]:
        return []


class Records:
    """The part of Store that the controller uses. `faults` are what happens to the next writes, in order."""

    def __init__(self) -> None:
        self.faults: deque[str] = deque()
        self.dead = False
        """The service is killed while it waits for an answer."""
        self.batches: list[Batch] = []
        self.trials = NoTrials()
        self.jobs: dict[int, Job] = {}
        self.specs: dict[int, Spec] = {}
        self.replicas: dict[Attempt, dict[str, Replica]] = defaultdict(dict)
        self.past: dict[int, list[PastAttempt]] = defaultdict(list)
        self.submissions: dict[Attempt, Submission] = {}
        self.events: dict[int, list[Event]] = defaultdict(list)
        self.stops: set[int] = set()
        """Jobs that a user stopped or deleted."""

    def check_not_removed(self) -> None: ...

    async def last_id(self) -> int:
        return max(self.jobs, default=0)

    async def taken(self, handles: list[tuple[str, str, str]]) -> set[tuple[str, str, str]]:
        used = {(job.project, job.scope, job.handle) for job in self.jobs.values() if not job.deleted}
        return used & set(handles)

    async def job(self, job_id: int) -> Job | None:
        return copy.copy(self.jobs.get(job_id))

    async def live(self) -> list[LiveRecord]:
        return self.live_records()

    def live_records(self) -> list[LiveRecord]:
        return [
            LiveRecord(
                copy.copy(job),
                self.specs[job.id],
                [copy.copy(one) for one in self.replicas[job.current].values()],
                tuple(self.past[job.id]),
                submission=self.submissions.get(job.current),
            )
            for job in sorted(self.jobs.values(), key=lambda job: job.id)
            if job.live
        ]

    async def commit(self, batch: Batch) -> None:
        fault = self.faults.popleft() if self.faults else ""
        match fault:
            case "refused":
                raise StoreError("the disk is full")
            case "answer lost":
                self.write(batch)
                raise StoreError("the connection broke")
            case "killed before" | "killed after":
                if fault == "killed after":
                    self.write(batch)
                self.dead = True
                await asyncio.Event().wait()
            case _:
                self.write(batch)

    def write(self, batch: Batch) -> None:
        self.batches.append(copy.deepcopy(batch))
        for job, new in batch.created:
            assert job.id not in self.jobs, f"job {job.id} is created twice"
            self.jobs[job.id], self.specs[job.id] = copy.copy(job), new.spec
            check_times(job)
        for one in batch.past:
            self.add_past(one)
        for job in batch.jobs:
            self.change(job)
        for one in batch.attempts:
            gang = self.replicas[Attempt(one.job, one.attempt)]
            assert str(one.name) not in gang, f"{one.name} of {one.job}.{one.attempt} is placed twice"
            gang[str(one.name)] = copy.copy(one)
        for one in batch.replicas:
            self.change_replica(one)
        for event in batch.events:
            self.add_event(event)
        for one in batch.submissions:
            self.submissions[Attempt(one.job, one.attempt)] = one

    def add_past(self, one: PastAttempt) -> None:
        past, policy = self.past[one.job], self.specs[one.job].policy
        assert one.attempt == len(past) + 1, f"attempt {one.attempt} of {one.job} ends again or is missing"
        assert one.ended >= (past[-1].ended if past else self.jobs[one.job].created)
        assert (one.started or 0) <= one.ended
        past.append(one)
        charged = [other for other in past if other.reason is not Reason.PREEMPTED]
        assert len(charged) <= sum(rule.times for rule in policy.retries), f"{one.job}: too many retries"
        assert policy.preemptible or len(charged) == len(past)

    def change(self, job: Job) -> None:
        before = self.jobs[job.id]
        check_times(job)
        assert job.updated >= before.updated
        assert before.started in (None, job.started), "a job starts once"
        assert job.created == before.created
        if not before.live:
            same = ("state", "reason", "message", "started", "ended", "attempt")
            for name in same:
                assert getattr(job, name) == getattr(before, name), (
                    f"{name} of {job.id} changes after its end"
                )
        elif job.attempt == before.attempt and len(self.past[job.id]) < job.attempt:
            assert ORDER.get(job.state, OVER) >= ORDER[before.state], (
                f"{job.id}: {before.state} → {job.state}"
            )
            self.check_reason(before, job)
        else:
            # Another attempt follows, or waits to.
            assert job.attempt in (before.attempt, before.attempt + 1)
            assert len(self.past[job.id]) in (job.attempt - 1, job.attempt)
        self.jobs[job.id] = copy.copy(job)

    def check_reason(self, before: Job, job: Job) -> None:
        if before.reason in (None, job.reason) or (before.reason, job.reason) in CORRECTIONS:
            return
        # A stop wins over a retry that was about to follow.
        assert job.reason is Reason.STOPPED, f"{job.id}: {before.reason} becomes {job.reason}"
        assert job.id in self.stops, f"{job.id}: nobody stopped it"

    def change_replica(self, one: Replica) -> None:
        gang = self.replicas[Attempt(one.job, one.attempt)]
        before, job = gang[str(one.name)], self.jobs[one.job]
        assert one.restarts in (before.restarts, before.restarts + 1)
        assert before.started in (None, one.started)
        assert one.started is None or one.started >= job.created
        assert one.ended is None or one.ended >= (one.started or job.created)
        assert one.state is not ReplicaState.RUNNING or one.started
        if before.ended is not None:
            assert one == before, f"{one.name} of {one.job} ends again"
        rule = self.specs[one.job].policy.in_place
        assert one.restarts <= (rule.times if rule else 0)
        gang[str(one.name)] = copy.copy(one)

    def add_event(self, event: Event) -> None:
        events = self.events[event.job]
        assert event.at >= (events[-1].at if events else self.jobs[event.job].created)
        if event.kind is EventKind.ENDED:
            assert all(other.kind is not EventKind.ENDED for other in events), f"{event.job} ends twice"
        events.append(event)


def check_times(job: Job) -> None:
    assert job.created <= (job.started or job.created) <= job.updated
    assert job.live == (job.ended is None)
    if job.ended:
        assert (job.started or job.created) <= job.ended <= job.updated
        assert job.reason is not None
    assert job.deleted is None or job.created <= job.deleted
