"""What the machine remembers of a job that has not ended."""

from dataclasses import dataclass, field

from turnout.control.pool import NOTHING, Placement, Seat
from turnout.control.verdict import Verdict
from turnout.job import (
    Attempt,
    Job,
    Launch,
    Past,
    Reason,
    Replica,
    ReplicaName,
    ReplicaState,
    Spec,
    State,
    Trial,
)
from turnout.job.resources import Share

SECOND = 1_000_000_000
FOREVER = 1e9
"""Who may wait so many seconds may wait as long as it takes."""


@dataclass(slots=True)
class Live:
    """A job that has not ended, with all that deciding about it needs."""

    job: Job
    spec: Spec
    engine: str
    replicas: dict[ReplicaName, Replica] = field(default_factory=dict[ReplicaName, Replica])
    placement: Placement = field(default_factory=dict[ReplicaName, Seat])
    verdict: Verdict | None = None
    past: list[Past] = field(default_factory=list[Past])
    """The attempts before the current one, or before the one that it waits for."""
    share: Share = field(init=False)
    queued_at: int = field(init=False)
    """When its current or last wait began."""
    finish_at: int | None = None
    """When replicas that outlive a lead that succeeded are ended."""
    saved_at: int | None = None
    trials: dict[int, Trial] = field(default_factory=dict[int, Trial])
    """A search's, by number: those that are not over."""
    best: str = ""
    """A search's best trial so far, for people."""

    def __post_init__(self) -> None:
        self.share = self.spec.share
        # A job comes back to the queue in its last change; one that was amended since then waits a little longer.
        self.queued_at = self.job.updated if self.past else self.job.created

    @property
    def searches(self) -> bool:
        """It has no gang; its trials do. One whose key is gone is known by that it runs without an attempt."""
        waits = self.job.state is State.QUEUED
        return self.spec.search is not None or not (waits or self.job.attempt)

    @property
    def overdue_at(self) -> int | None:
        """When a search has run as long as it may; None: it has not begun, ends anyway, or has no limit."""
        limit, started = self.spec.policy.time_limit, self.job.started
        if self.verdict or started is None or limit is None or limit > FOREVER:
            return None
        return started + int(limit * SECOND)

    @property
    def lead(self) -> Replica:
        return self.replicas[ReplicaName(self.spec.lead.name, 0)]

    @property
    def held(self) -> Share:
        """What its seats take. An oversized gang holds less than it asked for."""
        return sum((seat.share for seat in self.placement.values()), NOTHING)

    @property
    def retried(self) -> bool:
        """Whether its last attempt failed. Who was preempted is not served before others."""
        return bool(self.past) and self.past[-1].reason is not Reason.PREEMPTED

    @property
    def gives_up_at(self) -> int | None:
        """When it fails if it still waits then. Who was preempted waits as long as it takes."""
        policy = self.spec.policy
        seconds = policy.max_wait if not self.past else policy.retry_wait if self.retried else None
        return None if seconds is None or seconds > FOREVER else self.queued_at + int(seconds * SECOND)

    @property
    def may_be_preempted(self) -> bool:
        """Whether it runs, may be ended for others, and is not being ended anyway."""
        return self.spec.policy.preemptible and self.verdict is None and self.job.state is not State.QUEUED

    def running(self) -> list[Replica]:
        return [r for r in self.replicas.values() if r.state in (ReplicaState.WAITING, ReplicaState.RUNNING)]

    def launch(self) -> Launch:
        gpus = {str(name): seat.gpus for name, seat in self.placement.items()}
        job = self.job
        return Launch(job.current, job.project, job.dialect, job.name, self.spec, gpus)

    def next_launch(self) -> Launch:
        """The attempt that it waits for, without seats."""
        job = self.job
        return Launch(Attempt(job.id, job.attempt + 1), job.project, job.dialect, job.name, self.spec)
