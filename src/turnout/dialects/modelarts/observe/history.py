"""The history of a job, attempt by attempt."""

from collections.abc import Sequence
from typing import NamedTuple

from turnout.job import Event, EventKind, PastAttempt, Reason, Replica
from turnout.service import JobView


class AttemptTimes(NamedTuple):
    """One attempt, from the time that the job was queued for it."""

    number: int
    since: int
    placed: int | None
    started: int | None
    ended: int | None
    reason: Reason | None
    """Why the attempt ended, or is being ended."""
    message: str
    replicas: tuple[Replica, ...]


class History(NamedTuple):
    view: JobView
    events: Sequence[Event]
    past: Sequence[PastAttempt]
    """The attempts before the last one, in order."""
    replicas: Sequence[tuple[Replica, ...]]
    """The replicas of each attempt, in order."""

    def attempts(self) -> list[AttemptTimes]:
        """The attempts in order. The last one may still be queued."""
        job = self.view.job
        placed = self._times(EventKind.PLACED)
        earlier = {past.attempt: past for past in self.past}
        attempts: list[AttemptTimes] = []
        for number in range(1, max(job.attempt, len(self.past) + 1) + 1):
            past = earlier.get(number)
            replicas = self.replicas[number - 1] if number <= len(self.replicas) else ()
            started = past.started if past else _first_start(replicas)
            ended, reason, message = (
                (past.ended, past.reason, past.message) if past else (job.ended, job.reason, job.message)
            )
            since = self._requeued(attempts[-1]) if attempts else job.created
            at = placed[number - 1] if number <= len(placed) else None
            attempts.append(AttemptTimes(number, since, at, started, ended, reason, message, replicas))
        return attempts

    def _requeued(self, before: AttemptTimes) -> int:
        """The time at which the job went back to the queue."""
        ended = before.ended or before.since
        return next((at for at in self._times(EventKind.RETRIED) if at >= ended), ended)

    def _times(self, kind: EventKind) -> list[int]:
        return [event.at for event in self.events if event.kind is kind]


def _first_start(replicas: Sequence[Replica]) -> int | None:
    return min((replica.started for replica in replicas if replica.started is not None), default=None)
