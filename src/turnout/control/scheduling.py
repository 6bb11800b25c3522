"""One scheduling pass: starts jobs, fails those that waited too long, preempts for the head of the queue."""

import heapq
from collections.abc import Callable, Iterator
from functools import cache

from turnout.control.allocations import counted, describe_placement, placed_replica
from turnout.control.ends import give_up, stop_gang, waited_too_long
from turnout.control.live_job import SECOND, LiveJob
from turnout.control.live_jobs import LiveJobs
from turnout.control.node_pool import NOTHING, Allocation, NodePool, Placement
from turnout.control.preempt import fits_soon, victims
from turnout.control.queue import QueueEntry, Release, may_backfill, reservation
from turnout.control.quotas import Order, order_of, over_quota
from turnout.control.turn import StartGang
from turnout.control.verdict import Verdict
from turnout.job import EventKind, Job, Reason, State
from turnout.job.resources import Share

Reserved = Callable[[], float | None]
"""When the head will fit at the latest; None: that is not known. It may take long, so it is called only if needed."""


def schedule(live_jobs: LiveJobs, engine: str) -> None:
    """Starts every job that may start. No job gives up waiting before the engine has reported what it holds."""
    queue = live_jobs.queues[engine]
    if engine not in live_jobs.ready:
        return
    if live_jobs.engines[engine].pending is not None:
        _end_pending(live_jobs, engine)
    while queue:
        start = _start_all if live_jobs.engines[engine].pending is None else _hand_over_one
        while engine not in live_jobs.drained and start(live_jobs, engine):
            pass
        overdue = queue.overdue(live_jobs.steady)
        if not overdue:
            return
        for job_id in overdue:
            give_up(live_jobs, live_jobs.jobs[job_id])


def name_for(reader: Job, job: Job) -> str:
    """The name of a job in messages for the owner of another job. Names of other projects' jobs are not shown."""
    return job.name if job.project == reader.project else "a job of another project"


def _start_all(live_jobs: LiveJobs, engine: str) -> bool:
    """Starts the head whenever it fits, and other jobs only if that does not delay it. Returns whether one started.

    The head is the first job that can ever start on these nodes: a job that cannot does not delay others. It takes one
    look at each shape and at each job that starts, because a start leaves less room for the jobs before it.
    """
    pool, queue = live_jobs.pools[engine], live_jobs.queues[engine]
    head: LiveJob | None = None
    head_need, reserved, started = NOTHING, _at_no_known_time, False
    for waiting, found_next in _in_order(live_jobs, engine):
        live = live_jobs.jobs[waiting.job_id]
        need, _, never = pool.fit(live.parts)
        if never or over_quota(live_jobs, live):
            continue
        if head and not _may_backfill(live_jobs, waiting, need, head_need, pool, reserved):
            continue
        if _try_to_start(live_jobs, live, pool):
            started = True
            found_next(queue.first(waiting.shape(live.parts)))
        elif head is None:
            head, head_need = live, need
            live_jobs.heads[engine] = live.job.id
            if need.fits(pool.free):
                # There is enough room in total, but not on the right nodes: it waits for a node to empty.
                _make_room(live_jobs, head, pool)
                return started
        else:
            continue
        reserved = _make_room(live_jobs, head, pool) if head else _at_no_known_time
    return started


def _in_order(
    live_jobs: LiveJobs, engine: str
) -> Iterator[tuple[QueueEntry, Callable[[QueueEntry | None], None]]]:
    """The first job of each shape. The function takes the next job of that shape, which follows in its place."""

    def ordered(entry: QueueEntry) -> tuple[Order, QueueEntry]:
        return order_of(live_jobs, engine, entry), entry

    def add(waiting: QueueEntry | None) -> None:
        if waiting:
            heapq.heappush(heap, ordered(waiting))

    heap = list(map(ordered, live_jobs.queues[engine].firsts()))
    heapq.heapify(heap)
    while heap:
        was, waiting = heapq.heappop(heap)
        # With each start its project uses more, so its other jobs come later.
        if order_of(live_jobs, engine, waiting) > was:
            add(waiting)
        else:
            yield waiting, add


def _hand_over_one(live_jobs: LiveJobs, engine: str) -> bool:
    """Hands the first job of the queue to an engine with a queue of its own, if not too many wait there."""
    most = live_jobs.engines[engine].pending or 0
    if len(live_jobs.placed.pending_on(engine)) >= most:
        return False
    in_turn = (live_jobs.jobs[waiting.job_id] for waiting, _ in _in_order(live_jobs, engine))
    live = next((live for live in in_turn if not over_quota(live_jobs, live)), None)
    if live is None:
        return False
    unplaced = {name: Allocation("", NOTHING, ()) for name, _ in live.next_launch().replicas()}
    text = f"attempt {live.job.attempt + 1}: {counted(len(unplaced), 'replica')} handed to {live.job.cluster}"
    _begin_attempt(live_jobs, live, unplaced, text)
    return True


def _end_pending(live_jobs: LiveJobs, engine: str) -> None:
    """Ends jobs whose maximum wait is over while they wait in the engine's queue."""
    for live in live_jobs.placed.pending_on(engine):
        if live.gives_up_at is not None and live.gives_up_at <= live_jobs.steady:
            stop_gang(live_jobs, live, waited_too_long(live_jobs, live))


def _make_room(live_jobs: LiveJobs, head: LiveJob, pool: NodePool) -> Reserved:
    """The latest time at which the head, which does not fit now, will fit, if that is known.

    Ending gangs release their resources soon, at no known time: backfill must not use them.
    """
    engine, placed = head.engine, live_jobs.placed
    ending = placed.ending_on(engine)
    if fits_soon(head, pool, ending):
        return _at_no_known_time
    chosen = victims(head, pool, ending, placed.preemptible_on(engine, below=head.job.priority))
    for victim in chosen:
        why = f"preempted for {name_for(victim.job, head.job)}, which has priority {head.job.priority}"
        stop_gang(live_jobs, victim, Verdict(State.FAILED, Reason.PREEMPTED, why), EventKind.PREEMPTED)
    if chosen:
        return _at_no_known_time
    return cache(lambda: reservation(pool.fit(head.parts).need, pool.free, _releases(live_jobs, engine)))


def _at_no_known_time() -> None:
    return None


def _releases(live_jobs: LiveJobs, engine: str) -> Iterator[Release]:
    for at, live in live_jobs.placed.by_latest_end(engine, live_jobs.steady):
        yield Release(at, live.held)


def _may_backfill(
    live_jobs: LiveJobs, entry: QueueEntry, need: Share, head: Share, pool: NodePool, reserved: Reserved
) -> bool:
    limit = entry.spec.policy.time_limit
    return need.fits(pool.free) and may_backfill(
        need, limit, head, pool.free, live_jobs.steady / SECOND, reserved
    )


def _try_to_start(live_jobs: LiveJobs, live: LiveJob, pool: NodePool) -> bool:
    placement = pool.place(live.next_launch(), live.parts)
    if placement is None:
        return False
    pool.take(placement)
    _begin_attempt(live_jobs, live, placement, describe_placement(live, placement, pool))
    return True


def _begin_attempt(live_jobs: LiveJobs, live: LiveJob, placement: Placement, text: str) -> None:
    job = live.job
    live_jobs.queues[live.engine].remove(job.id)
    job.attempt += 1
    live_jobs.transitions.enter(live, State.PREPARING)
    live.placement = placement
    live_jobs.placed.add(live)
    live.replicas = {name: placed_replica(job, name, allocation) for name, allocation in placement.items()}
    live_jobs.turn.batch.attempts.extend(live.replicas.values())
    live_jobs.change(job)
    live_jobs.event(job, EventKind.PLACED, text)
    live_jobs.turn.instructions.append(StartGang(live.engine, live.launch()))
