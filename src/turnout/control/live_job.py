"""What the state machine remembers of a job that has not ended."""

from dataclasses import dataclass, field
from functools import lru_cache

from turnout.control.node_pool import NOTHING, Allocation, Placement
from turnout.control.verdict import Verdict
from turnout.job import (
    Attempt,
    Job,
    Launch,
    Notify,
    PastAttempt,
    Policy,
    Reason,
    Replica,
    ReplicaName,
    ReplicaState,
    Search,
    Spec,
    State,
    Trial,
)
from turnout.job.resources import Parts, Share

SECOND = 1_000_000_000
FOREVER = 1e9
"""A limit above this many seconds counts as no limit."""


@dataclass(slots=True)
class LiveJob:
    """A job that has not ended, with everything that decisions about it need."""

    job: Job
    spec: Spec
    """Of a search only what it needs itself: it has no gang, and its trials are made from the stored spec."""
    engine: str
    replicas: dict[ReplicaName, Replica] = field(default_factory=dict[ReplicaName, Replica])
    placement: Placement = field(default_factory=dict[ReplicaName, Allocation])
    verdict: Verdict | None = None
    past: list[PastAttempt] = field(default_factory=list[PastAttempt])
    """The attempts before the current or the next one."""
    parts: Parts = field(init=False)
    last_event_at: int = field(init=False)
    """The time of its last event. Later events never get an earlier time."""
    queued_at: int = 0
    """When its current or last wait began, by the steady clock."""
    running_since: int | None = None
    """When its lead, or the first trial of a search, started, by the steady clock."""
    finish_at: int | None = None
    """When the remaining replicas are ended after the lead has succeeded, by the steady clock."""
    saved_at: int | None = None
    trials: dict[int, Trial] = field(default_factory=dict[int, Trial])
    """A search's unfinished trials, by number."""
    pending_why: str = ""
    """Why it waits in the queue of its engine, as the engine last reported."""
    seen_state: State = State.QUEUED
    """Its state after the last turn, for Transitions."""
    seen_at: int = 0
    """When that began, by the steady clock."""
    best: str = ""
    """A description of the search's best trial so far."""

    def __post_init__(self) -> None:
        self.parts = self.spec.parts
        if self.spec.search:
            spec = self.spec
            self.spec = _outline(spec.policy, spec.debug, spec.notify, spec.key)
        self.last_event_at = max(self.job.updated, self.began_after)

    @property
    def is_search(self) -> bool:
        """Whether it is a search. A search has no gang; one whose spec cannot be decrypted runs without an attempt."""
        waits = self.job.state is State.QUEUED
        return self.spec.search is not None or not (waits or self.job.attempt)

    @property
    def began_after(self) -> int:
        """The earliest time at which its current or next attempt can have begun."""
        return max(self.job.created, self.past[-1].ended if self.past else 0)

    @property
    def overdue_at(self) -> int | None:
        """When a search reaches its time limit; None if it has not begun, is ending, or has no limit."""
        limit, since = self.spec.policy.time_limit, self.running_since
        if self.verdict or since is None or limit is None or limit > FOREVER:
            return None
        return since + int(limit * SECOND)

    @property
    def lead(self) -> Replica:
        return self.replicas[ReplicaName(self.spec.lead.name, 0)]

    @property
    def held(self) -> Share:
        """The sum of its allocations. An oversized gang holds less than it asked for."""
        return sum((allocation.share for allocation in self.placement.values()), NOTHING)

    @property
    def retried(self) -> bool:
        """Whether its last attempt failed. A preempted job does not go to the front of the queue."""
        return bool(self.past) and self.past[-1].reason is not Reason.PREEMPTED

    @property
    def gives_up_at(self) -> int | None:
        """When it fails if it still waits, by the steady clock. A preempted job waits without a limit."""
        policy = self.spec.policy
        seconds = policy.max_wait if not self.past else policy.retry_wait if self.retried else None
        return None if seconds is None or seconds > FOREVER else self.queued_at + int(seconds * SECOND)

    @property
    def may_be_preempted(self) -> bool:
        """Whether it is preemptible, placed, and not already ending."""
        return self.spec.policy.preemptible and self.verdict is None and self.job.state is not State.QUEUED

    @property
    def begun(self) -> bool:
        """Whether a replica of its current attempt has started or ended."""
        return any(r.started or r.ended or r.restarts for r in self.replicas.values())

    def running(self) -> list[Replica]:
        return [r for r in self.replicas.values() if r.state in (ReplicaState.WAITING, ReplicaState.RUNNING)]

    def launch(self) -> Launch:
        gpus = {str(name): allocation.gpus for name, allocation in self.placement.items()}
        job = self.job
        return Launch(job.current, job.project, job.dialect, job.name, self.spec, gpus)

    def next_launch(self) -> Launch:
        """The next attempt, without allocations."""
        job = self.job
        return Launch(Attempt(job.id, job.attempt + 1), job.project, job.dialect, job.name, self.spec)


@lru_cache(maxsize=256)
def _outline(policy: Policy, debug: bool, notify: Notify | None, key: str) -> Spec:
    """Shared by all searches with this policy, because very many may wait."""
    return Spec((), policy=policy, debug=debug, notify=notify, key=key, search=Search((), (), ()))
