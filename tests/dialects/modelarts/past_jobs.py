"""A job with a history, made by hand, for what only reads it."""

import msgspec

from turnout.dialects.modelarts.observe.history import History
from turnout.job import Event, EventKind, Job, PastAttempt, Reason, Replica, ReplicaState, State
from turnout.service import JobView

SECOND = 1_000_000_000
START = 1_669_449_696 * SECOND
"""2022-11-26T16:01:36+08:00"""


def document(**spec: object) -> bytes:
    return msgspec.json.encode({"kind": "job", "spec": {"resource": {}} | spec})


def job(state: State = State.QUEUED, reason: Reason | None = None, attempt: int = 1) -> Job:
    return Job(
        id=START // 1_000_000 << 20,
        project="p1",
        dialect="modelarts",
        scope="modelarts:0",
        handle="train",
        name="train",
        cluster="ap-beijing",
        state=state,
        priority=1,
        created=START,
        updated=START,
        attempt=attempt,
        reason=reason,
    )


def event(seconds: float, kind: EventKind, message: str = "") -> Event:
    return Event(job().id, at(seconds), kind, message)


def at(seconds: float) -> int:
    return START + int(seconds * SECOND)


def replica(
    index: int,
    started: float | None,
    ended: float | None = None,
    *,
    attempt: int = 1,
    state: ReplicaState = ReplicaState.RUNNING,
    code: int | None = None,
    signal: int | None = None,
    message: str = "",
) -> Replica:
    return Replica(
        job().id,
        attempt,
        "worker",
        index,
        state,
        address=f"127.64.{attempt}.{index + 1}",
        started=None if started is None else at(started),
        ended=None if ended is None else at(ended),
        exit_code=code,
        signal=signal,
        message=message,
    )


def completed(**spec: object) -> History:
    """Waited 2 s, ran for 60 s on two workers, uploaded for 3 s."""
    ended = job(State.SUCCEEDED, Reason.SUCCEEDED)
    ended.started, ended.ended = at(4), at(67)
    replicas = tuple(
        replica(n, 4, 64, state=ReplicaState.SUCCEEDED, code=0, message="exited with code 0") for n in (0, 1)
    )
    happened = [
        event(0, EventKind.CREATED, "created on ap-beijing"),
        event(0, EventKind.NOTE, "pytorch asks for PyTorch 1.8; here it runs on Python 3.11."),
        event(2, EventKind.PLACED, "attempt 1: 2 replicas on here"),
        event(4, EventKind.STARTED, "worker-0 runs as process 7"),
        event(67, EventKind.SAVED, "2 files, 3.1 MB"),
        event(67, EventKind.ENDED, "succeeded"),
    ]
    return History(JobView(ended, replicas, document(**spec)), happened, [], [replicas])


def restarted(reason: Reason, kinds: tuple[EventKind, ...], **spec: object) -> History:
    """The first attempt ended at 10 s for `reason`; the second waits since 11 s."""
    waiting = job(State.QUEUED, None, attempt=1)
    waiting.started = at(1)
    first = (replica(0, 1, 10, state=ReplicaState.FAILED, signal=9, message="was killed by SIGKILL"),)
    happened = [
        event(0, EventKind.CREATED, "created"),
        event(0, EventKind.PLACED, "attempt 1"),
        event(1, EventKind.STARTED, "worker-0 runs as process 7"),
        *(event(11, kind, f"{reason}") for kind in kinds),
    ]
    past = [PastAttempt(waiting.id, 1, at(1), at(10), reason, f"worker-0: {reason}", "worker-0")]
    return History(JobView(waiting, first, document(**spec)), happened, past, [first])
