"""How jobs change their state: counted, and listed for each turn."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from turnout.control.live_job import SECOND, LiveJob
from turnout.job import Job, Notify, Reason, State
from turnout.webhooks import HUNG, PREEMPTED, RESTARTED


class Transition(NamedTuple):
    job: Job
    was: State | None
    """None for a new job."""
    seconds: float
    """How long it was in that state."""
    events: tuple[str, ...]
    notify: Notify | None
    sealed: bool
    """Whether the job is encrypted, so that its message must not be shown."""


class Transitions:
    def __init__(self) -> None:
        self.counts = Counter[State]()
        """The live jobs in each state."""
        self.running = Counter[tuple[str, str]]()
        """The running jobs by project and cluster."""
        self._ended: dict[int, LiveJob] = {}
        self._entered: dict[int, list[tuple[State, int]]] = {}
        """The states that each job entered in this turn, with its attempt then; not the one that it ended in."""

    def begin(self, live: LiveJob, steady: int) -> None:
        """Call it for a job that was admitted or loaded from the store."""
        live.seen_state, live.seen_at = live.job.state, steady
        self._count(live, live.job.state, 1)

    def enter(self, live: LiveJob, state: State) -> None:
        """Changes its state to one that it may leave in the same turn: a job may start and end in one."""
        live.job.state = state
        self._entered.setdefault(live.job.id, []).append((state, live.job.attempt))

    def end(self, live: LiveJob) -> None:
        """Call it before the job is dropped."""
        self._ended[live.job.id] = live

    def of_turn(
        self, created: Iterable[Job], changed: Iterable[Job], jobs: dict[int, LiveJob], steady: int
    ) -> list[Transition]:
        fresh = {job.id: job for job in created}
        found = [
            _transition(jobs[job.id], job, None, 0.0, ("queued",)) for job in fresh.values() if job.id in jobs
        ]
        for job in {job.id: job for job in (*fresh.values(), *changed)}.values():
            live = jobs.get(job.id) or self._ended.pop(job.id, None)
            if live is not None and (live.seen_state is not job.state or job.id in self._entered):
                found.extend(self._of_job(live, steady))
        self._entered.clear()
        return found

    def _of_job(self, live: LiveJob, steady: int) -> Iterable[Transition]:
        job = live.job
        entered = self._entered.get(job.id, [])
        if entered and entered[-1][0] is job.state:
            entered.pop()
        for state, attempt in entered:
            if state is not live.seen_state:
                then = msgspec.structs.replace(
                    job, state=state, attempt=attempt, ended=None, reason=None, message=""
                )
                yield self._change(live, then, steady)
        if live.seen_state is not job.state:
            yield self._change(live, job, steady)

    def _change(self, live: LiveJob, job: Job, steady: int) -> Transition:
        """`job`: as it is after the change."""
        was, seconds = live.seen_state, max(0, steady - live.seen_at) / SECOND
        self._count(live, was, -1)
        if job.live:
            self._count(live, job.state, 1)
        live.seen_state, live.seen_at = job.state, steady
        return _transition(live, job, was, seconds, tuple(_events(live, job)))

    def _count(self, live: LiveJob, state: State, sign: int) -> None:
        self.counts[state] += sign
        if state is State.RUNNING:
            key = live.job.project, live.job.cluster
            self.running[key] += sign
            if not self.running[key]:
                del self.running[key]


def _events(live: LiveJob, job: Job) -> Iterable[str]:
    yield str(job.state)
    if job.state is State.RUNNING and job.attempt > 1:
        yield RESTARTED
    reason = live.verdict.reason if live.verdict else None
    if job.state is State.STOPPING and reason is Reason.HUNG:
        yield HUNG
    if job.state is State.STOPPING and reason is Reason.PREEMPTED:
        yield PREEMPTED


def _transition(
    live: LiveJob, job: Job, was: State | None, seconds: float, events: tuple[str, ...]
) -> Transition:
    return Transition(job, was, seconds, events, live.spec.notify, bool(live.spec.key))
