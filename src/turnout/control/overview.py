"""The queue and the capacity of an engine: who holds what, and who waits for what."""

from itertools import islice
from typing import NamedTuple

from turnout.control.explain import summarize
from turnout.control.live_job import LiveJob
from turnout.control.node_pool import NOTHING
from turnout.control.state_machine import StateMachine
from turnout.job import Job, Node
from turnout.job.resources import Share

MOST = 1000
"""Of the jobs that hold something, of those that wait, and of the nodes, so many are looked at."""


class Held(NamedTuple):
    """What the replicas of a job hold on one node."""

    node: str
    share: Share
    gpus: tuple[int, ...]
    """The numbers of the GPUs, if they are known."""
    replicas: int


class Holder(NamedTuple):
    job: Job
    held: Share
    by_node: list[Held]


class ProjectUsage(NamedTuple):
    running: int
    """Jobs that hold resources."""
    share: Share
    """What they asked for, which the quota counts."""
    waiting: int


class Waiter(NamedTuple):
    job: Job
    needs: Share
    place: int
    """In the queue, counted from 1."""
    waits_for: str


class Overview(NamedTuple):
    engine: str
    total: Share
    free: Share
    nodes: tuple[tuple[Node, Share], ...]
    """Each with what is free on it."""
    holders: list[Holder]
    """Those that the reader may see."""
    others: Share
    """What jobs that the reader may not see hold."""
    placed: int
    """The number of all jobs that hold something."""
    waiters: list[Waiter]
    waiting: int
    """The number of all jobs that wait."""


class Capacity(NamedTuple):
    total: Share
    """With overcommitted CPU."""
    free: Share
    used: tuple[float, int, float]
    """Cores, bytes of memory and GPUs that replicas used by their last samples."""


def capacity(machine: StateMachine, engine: str) -> Capacity:
    pool = machine.pools[engine]
    return Capacity(pool.total, pool.free, machine.used.on(engine))


def overview(machine: StateMachine, engine: str, project: str | None) -> Overview:
    """`project`: only the jobs of this project are shown; None: all are."""
    pool, queue = machine.pools[engine], machine.queues[engine]
    placed = machine.placed.on(engine)
    shown = [live for live in placed if project in (None, live.job.project)]
    waiting = [machine.jobs[entry.job_id] for entry in islice(queue, MOST)]
    holders = [_holder(live) for live in shown[:MOST]]
    return Overview(
        engine,
        pool.total,
        pool.free,
        tuple((node, pool.free_on(node.name)) for node in pool.nodes[:MOST]),
        holders,
        sum((live.held for live in placed if project not in (None, live.job.project)), NOTHING),
        len(placed),
        [
            Waiter(live.job, pool.fit(live.parts).need, place, summarize(machine, live))
            for place, live in enumerate(waiting, 1)
            if project in (None, live.job.project)
        ],
        len(queue),
    )


def usage(machine: StateMachine, project: str) -> ProjectUsage:
    used = machine.placed.used_by(project)
    return ProjectUsage(used.jobs, used.share, machine.waiting(project))


def _holder(live: LiveJob) -> Holder:
    by_node: dict[str, Held] = {}
    for name, (placed_on, share, gpus) in live.placement.items():
        # Where a cluster places the replicas itself, only it knows the nodes, and tells them when they start.
        node = placed_on or live.replicas[name].node
        _, held, devices, replicas = by_node.get(node, Held(node, NOTHING, (), 0))
        by_node[node] = Held(node, held + share, devices + gpus, replicas + 1)
    return Holder(live.job, live.held, list(by_node.values()))
