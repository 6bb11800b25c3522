"""How attempts and jobs end, and when a job goes back to the queue instead."""

from turnout.control.board import Board
from turnout.control.live import SECOND, Live
from turnout.control.retry import Again, another_go
from turnout.control.turn import Forget, Remove, Save, StopGang
from turnout.control.verdict import Verdict
from turnout.job import Attempt, EventKind, Job, Past, Reason, Replica, ReplicaState, State, WhenLeadSucceeds

DECIDED_HERE = frozenset({Reason.PREEMPTED, Reason.HUNG})
"""Why we end a gang of whose members none has failed."""


def decide(board: Board, live: Live, verdict: Verdict) -> None:
    """The outcome is written down as soon as it is certain, so that it outlives the service."""
    if live.verdict is None:
        live.verdict = verdict
        live.job.reason, live.job.message = verdict.reason, verdict.message
    board.change(live.job)


def wind_up(
    board: Board,
    live: Live,
    verdict: Verdict,
    kind: EventKind = EventKind.STOPPING,
    at: int | None = None,
) -> None:
    """End all that runs of the gang, for this reason unless it has one already."""
    decide(board, live, verdict)
    live.job.state = State.STOPPING
    board.event(live.job, kind, verdict.message, at)
    stop_replicas(board, live, live.running())


def stop_replicas(board: Board, live: Live, replicas: list[Replica]) -> None:
    if replicas:
        names = tuple(replica.name for replica in replicas)
        grace = live.spec.policy.grace
        board.turn.instructions.append(StopGang(live.engine, live.job.current, grace, names))


def end_with_lead(live: Live) -> list[Replica]:
    ending = {role.name for role in live.spec.roles if role.when_lead_succeeds is WhenLeadSucceeds.END}
    return [replica for replica in live.running() if replica.role in ending]


def finish_later(board: Board, live: Live, lead_ended: int) -> None:
    live.finish_at = lead_ended + int(live.spec.policy.finish_seconds * SECOND)
    board.finishing[live.job.id] = live


def end_stragglers(board: Board) -> None:
    for live in list(board.finishing.values()):
        if live.finish_at is not None and live.finish_at <= board.now:
            del board.finishing[live.job.id]
            stop_replicas(board, live, live.running())


def attempt_over(board: Board, live: Live) -> None:
    """It has ended when its results are where they belong, also if it failed or was stopped."""
    board.pools[live.engine].give(live.placement)
    live.placement = {}
    board.finishing.pop(live.job.id, None)
    began = any(replica.started for replica in live.replicas.values())
    if began and live.spec.saves:
        board.turn.instructions.append(Save(live.engine, live.job.current))
    else:
        end_attempt(board, live)


def end_attempt(board: Board, live: Live) -> None:
    board.pools[live.engine].give(live.placement)
    board.placed.pop(live.job.id, None)
    board.finishing.pop(live.job.id, None)
    again = starts_over(live) if live.job.deleted is None else None
    if again:
        _back_to_queue(board, live, again)
    else:
        end_job(board, live)


def starts_over(live: Live) -> Again | None:
    """Whether it goes back to the queue when the attempt that is judged is over."""
    assert live.verdict is not None, "a gang whose members have all ended has a verdict"
    # Where nobody failed, but what they made could not be stored, it is the lead that decided.
    decided = _first_to_fail(live) or live.lead
    return another_go(live.spec.policy, live.past, live.verdict.reason, decided.shell_code)


def give_up(board: Board, live: Live) -> None:
    """It has waited for a place as long as it may."""
    waited = f"waited {_duration(board.now - live.queued_at)} for a place, which is as long as it may"
    if live.past:
        last = live.past[-1]
        waited = f"attempt {last.attempt} ended: {last.message}; attempt {last.attempt + 1} {waited}"
    live.verdict = Verdict(State.FAILED, Reason.WAITED, waited)
    board.queues[live.engine].remove(live.job.id)
    end_job(board, live)


def end_job(board: Board, live: Live) -> None:
    job, verdict = live.job, live.verdict
    assert verdict is not None
    job.state, job.reason, job.message = verdict.state, verdict.reason, verdict.message
    job.ended = _ended_at(live) or board.now
    board.change(job)
    board.event(job, EventKind.ENDED, verdict.message or str(verdict.reason), job.ended)
    board.turn.ended.append(job)
    del board.jobs[job.id]
    board.searches.pop(job.id, None)
    if board.handles.get((job.project, job.scope, job.handle)) == job.id:
        del board.handles[(job.project, job.scope, job.handle)]
    if job.attempt and job.id not in board.trials:
        board.turn.instructions.append(Forget(live.engine, job.current, live.spec.debug))
    if job.deleted:
        remove(board, job)


def remove(board: Board, job: Job) -> None:
    """Clear away what is left of all its attempts."""
    attempts = tuple(Attempt(job.id, number) for number in range(1, job.attempt + 1))
    if attempts:
        board.turn.instructions.append(Remove(board.engine_of(job.cluster), attempts))


def _back_to_queue(board: Board, live: Live, again: Again) -> None:
    job = live.job
    past = _past(board, live)
    live.past.append(past)
    board.turn.batch.past.append(past)
    board.turn.instructions.append(Forget(live.engine, job.current))
    board.event(
        job,
        EventKind.RETRIED,
        f"attempt {past.attempt} ended: {past.message}; attempt {past.attempt + 1} follows ({again})",
    )
    live.verdict = live.finish_at = live.saved_at = None
    live.placement, live.replicas = {}, {}
    live.queued_at = board.now
    job.state, job.reason, job.message = State.QUEUED, None, ""
    board.change(job)
    board.enqueue(live)


def _past(board: Board, live: Live) -> Past:
    assert live.verdict is not None
    _, reason, message = live.verdict
    decided = None if reason in DECIDED_HERE else _first_to_fail(live)
    return Past(
        job=live.job.id,
        attempt=live.job.attempt,
        started=live.lead.started,
        ended=_ended_at(live) or board.now,
        reason=reason,
        message=message,
        replica=str(decided.name) if decided else "",
        code=decided.shell_code if decided else None,
    )


def _first_to_fail(live: Live) -> Replica | None:
    failed = [replica for replica in live.replicas.values() if replica.state is ReplicaState.FAILED]
    return min(failed, key=lambda replica: replica.ended or 0, default=None)


def _ended_at(live: Live) -> int | None:
    ends = [replica.ended for replica in live.replicas.values() if replica.ended]
    return max([*ends, live.saved_at or 0]) if ends else None


def _duration(nanoseconds: int) -> str:
    seconds = nanoseconds // SECOND
    return f"{seconds // 60} minutes" if seconds >= 120 else f"{seconds} seconds"
