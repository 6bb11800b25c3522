"""Who starts now, who has waited too long, and who has to go for the next one."""

from turnout.control.board import Board
from turnout.control.ends import give_up, wind_up
from turnout.control.live import SECOND, Live
from turnout.control.pool import Pool
from turnout.control.preempt import fits_soon, victims
from turnout.control.queue import Release, Waiting, may_pass, reservation
from turnout.control.seats import seated, words_of
from turnout.control.turn import StartGang
from turnout.control.verdict import Verdict
from turnout.job import EventKind, Job, Reason, State
from turnout.job.resources import Share


def schedule(board: Board, engine: str) -> None:
    """Start all that may start. Nobody gives up before the engine is there to have a place or not."""
    queue = board.queues[engine]
    if engine not in board.ready or not queue:
        return
    while True:
        while _start_one(board, engine):
            pass
        overdue = queue.overdue(board.now)
        if not overdue:
            return
        for job_id in overdue:
            give_up(board, board.jobs[job_id])


def name_for(reader: Job, job: Job) -> str:
    """What the owner of one job may hear about another's."""
    return job.name if job.project == reader.project else "a job of another project"


def _start_one(board: Board, engine: str) -> bool:
    """Start the first job that may start now. The head may always; others only where they do not delay it."""
    pool, head = board.pools[engine], None
    reserved: float | None = None
    for waiting in board.queues[engine].firsts():
        live = board.jobs[waiting.job_id]
        need = pool.need(live.share)
        if head is None:
            if _try(board, live, pool):
                return True
            head, reserved = need, _make_room(board, live, pool)
        elif _passes(board, waiting, need, head, pool, reserved) and _try(board, live, pool):
            return True
    return False


def _make_room(board: Board, head: Live, pool: Pool) -> float | None:
    """When the head, which does not fit, will fit at the latest, as far as that is known.

    Gangs that are being ended, now or from before, give way at no certain time, but soon: whoever passes the head
    meanwhile must leave their room alone.
    """
    placed = board.placed_on(head.engine)
    if fits_soon(head, pool, placed):
        return None
    chosen = victims(head, pool, placed)
    for victim in chosen:
        why = f"preempted for {name_for(victim.job, head.job)}, which has priority {head.job.priority}"
        wind_up(board, victim, Verdict(State.FAILED, Reason.PREEMPTED, why), EventKind.PREEMPTED)
    return None if chosen else reservation(pool.need(head.share), pool.room, _releases(board, placed))


def _releases(board: Board, placed: list[Live]) -> list[Release]:
    releases: list[Release] = []
    for live in placed:
        limit = live.spec.policy.time_limit
        if limit is not None and live.placement:
            since = live.lead.started or board.now
            releases.append(Release(since / SECOND + limit + live.spec.policy.grace, live.held))
    return releases


def _passes(
    board: Board, waiting: Waiting, need: Share, head: Share, pool: Pool, reserved: float | None
) -> bool:
    limit = waiting.spec.policy.time_limit
    return need.fits(pool.room) and may_pass(need, limit, head, pool.room, board.now / SECOND, reserved)


def _try(board: Board, live: Live, pool: Pool) -> bool:
    job = live.job
    placement = pool.place(live.next_launch(), live.share)
    if placement is None:
        return False
    pool.take(placement)
    board.queues[live.engine].remove(job.id)
    job.attempt += 1
    job.state = State.PREPARING
    live.placement = placement
    board.placed[job.id] = live
    live.replicas = {name: seated(job, name, seat) for name, seat in placement.items()}
    board.turn.batch.attempts.extend(live.replicas.values())
    board.change(job)
    board.event(job, EventKind.PLACED, words_of(live, pool))
    board.turn.instructions.append(StartGang(live.engine, live.launch()))
    return True
