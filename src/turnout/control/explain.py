"""Explains why a job waits: what is missing, its position in the queue, and what would let it start."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from heapq import nsmallest
from types import MappingProxyType
from typing import NamedTuple

from turnout.control.live_job import SECOND, LiveJob
from turnout.control.node_pool import NOTHING, NodePool
from turnout.control.preempt import fits_soon, victims
from turnout.control.queue import rank
from turnout.control.quotas import over_quota, quota_in_a_line
from turnout.control.scheduling import name_for
from turnout.control.state_machine import StateMachine
from turnout.engines import NO_ENGINE
from turnout.job import State
from turnout.job.resources import CORE, GIB, Share
from turnout.search import MOST_WAITING

_NAMED = 3
"""How many of the jobs ahead in the queue, or of those that hold something, are named."""
_NOT_CHOSEN = (
    f"Its first trial has not been chosen yet: at most {MOST_WAITING} equal searches of a project wait for "
    "resources at a time."
)
_RESOURCES = ("cpu", "memory", "gpus")
"""In the order of Share."""


class Explanation(NamedTuple):
    why: list[str]
    position: int | None = None
    """Among the waiting jobs of its project, counted from 1."""
    waiting: int = 0
    """How many jobs of its project wait."""
    missing: Mapping[str, float] = MappingProxyType({})
    """How much more `cpu`, `memory` (bytes) and `gpus` must become free."""
    gives_up_at: int | None = None
    """When it fails if it still waits."""


def explain(machine: StateMachine, live: LiveJob) -> Explanation:
    if live.engine == NO_ENGINE:
        return Explanation([_no_engine(live)])
    if live.is_search and live.job.state is not State.STOPPING:
        return _explain_search(machine, live)
    match live.job.state:
        case State.QUEUED:
            return _explain_waiting(machine, live)
        case State.PREPARING if live.engine and machine.engines[live.engine].pending is not None:
            return _explain_pending(live)
        case State.PREPARING:
            return Explanation([live.pending_why or "It is placed; its processes are starting."])
        case State.STOPPING:
            return Explanation([f"It is stopping: {live.job.message}."])
        case _:
            return Explanation(["It is running."])


def summarize(machine: StateMachine, live: LiveJob) -> str:
    """What the job waits for, in a line; empty if it does not wait. The time does not grow with the number of jobs."""
    if live.engine == NO_ENGINE:
        return "its cluster is not in the settings"
    if live.is_search:
        return "" if live.job.state is not State.QUEUED else "its first trial has not started"
    if live.job.state is State.PREPARING and machine.engines[live.engine].pending is not None:
        return live.pending_why or f"waits in the queue of {live.job.cluster}"
    if live.job.state is not State.QUEUED:
        return live.pending_why if live.job.state is State.PREPARING else ""
    queue = machine.queues[live.engine]
    place = f"place {queue.ahead_of(live.job.id, 0)[0] + 1} of {queue.count(live.job.project)}"
    if len(queue.projects) > 1:
        place += f" in {live.job.project}"
    if live.engine not in machine.ready:
        return f"{place}: the engine has not reported yet"
    if live.engine in machine.drained:
        return f"{place}: the cluster {live.job.cluster} is drained"
    if quota := quota_in_a_line(machine, live):
        return f"{place}: {quota}"
    if machine.engines[live.engine].pending is not None:
        return f"{place}: the queue of {live.job.cluster} is full"
    pool = machine.pools[live.engine]
    need, alone, never = pool.fit(live.parts)
    if never:
        return f"{place}: there is no machine large enough"
    short = _short(need, pool.free)
    if not short:
        return f"{place}: the jobs ahead of it start first"
    missing = " and ".join(_amount(what, amount) for what, amount in short.items())
    return f"{place}: needs {'the whole machine' if alone else f'{missing} more'}"


def _no_engine(live: LiveJob) -> str:
    table = f"[clusters.{live.job.cluster}]"
    if live.job.state is State.QUEUED:
        return f"Its cluster is not in the settings ({table}): it waits until the cluster is back or it is stopped."
    return (
        f"It was handed to a cluster that is not in the settings any more ({table}), or is now of another kind: "
        "its state there is not known until the cluster is back."
    )


def _explain_pending(live: LiveJob) -> Explanation:
    why = live.pending_why or f"It was handed to {live.job.cluster} and has not started there yet."
    return Explanation([why])


def _explain_search(machine: StateMachine, live: LiveJob) -> Explanation:
    """A search waits for whatever its trials wait for."""
    trials = [machine.jobs[trial.child] for trial in live.trials.values() if trial.child in machine.jobs]
    running = sum(trial.job.state is State.RUNNING for trial in trials)
    waiting = next((trial for trial in trials if trial.job.state is State.QUEUED), None)
    if live.job.state is not State.RUNNING:
        why = ["Its first trial has not started yet." if trials else _NOT_CHOSEN]
    else:
        why = [f"It is running {running} of its trials now.", *_so_far(live)]
    if waiting is None:
        return Explanation(why)
    explanation = explain(machine, waiting)
    return explanation._replace(why=[*why, f"Its trial {waiting.job.name} waits.", *explanation.why])


def _so_far(live: LiveJob) -> list[str]:
    return [f"So far, the {live.job.message}."] if live.job.message else []


def _explain_waiting(machine: StateMachine, live: LiveJob) -> Explanation:
    queue = machine.queues[live.engine]
    most = machine.engines[live.engine].pending
    count, first = queue.ahead_of(live.job.id, _NAMED)
    position, waiting = count + 1, queue.count(live.job.project)
    again = [f"Attempt {past.attempt} ended: {past.message}." for past in live.past[-1:]]
    if live.engine not in machine.ready:
        why = (
            f"The engine {live.engine} has not reported yet what it runs; no job is placed on it before that."
        )
        return Explanation([*again, why], position, waiting)
    if live.engine in machine.drained:
        why = f"Cluster {live.job.cluster} takes no new jobs, because an operator has drained it."
        return Explanation([*again, why], position, waiting)
    if quota := over_quota(machine, live):
        return Explanation([*again, quota], position, waiting)
    ahead = _ahead(live, [machine.jobs[entry.job_id] for entry in first], count, waiting)
    if most is not None:
        there = len(machine.placed.pending_on(live.engine))
        full = f"{there} jobs wait in the queue of {live.job.cluster}, and at most {most} may"
        return Explanation([*again, f"{full}: it follows when they start.", *ahead], position, waiting)
    pool, head = machine.pools[live.engine], machine.jobs.get(machine.heads.get(live.engine, 0))
    need, alone, never = pool.fit(live.parts)
    short = _short(need, pool.free)
    why = [*again, _needs(need, pool.free, pool.total)]
    if alone and not never:
        why.append("It asks for more than there is, so it starts when nothing else runs, and runs alone.")
    if never:
        why.append(_never(need, pool))
    elif short:
        why += _holders(machine, live, short) + _preempted_jobs(machine, live, is_head=head is live)
    why += ahead + _fair_share(machine, live)
    if not short and head and head is not live:
        named = name_for(live.job, head.job)
        why.append(f"There is room for it now, but starting it could delay {named}, which is next.")
    gives_up_at = None
    if live.gives_up_at is not None:
        gives_up_at = machine.now + live.gives_up_at - machine.steady
        why.append(f"It gives up at {_time(gives_up_at)} if it still waits then.")
    return Explanation(why, position, waiting, short, gives_up_at)


def _short(need: Share, free: Share) -> dict[str, float]:
    """The missing amounts, in cores and bytes."""
    lacks = need - free
    amounts = {"cpu": lacks.millicores / CORE, "memory": lacks.memory, "gpus": lacks.gpus}
    return {what: amount for what, amount in amounts.items() if amount > 0}


def _never(need: Share, pool: NodePool) -> str:
    if not pool.nodes:
        return "It cannot start: there are no nodes."
    there = " and ".join(str(node.gpus) for node in pool.nodes)
    return f"It can never start: it needs {need.gpus} GPUs, and there are {there}."


def _ahead(live: LiveJob, first: list[LiveJob], count: int, waiting: int) -> list[str]:
    if not count:
        return []
    names = _names(live, first) + (", …" if count > len(first) else "")
    return [f"{count} of {waiting} waiting jobs are ahead of it: {names}."]


def _fair_share(machine: StateMachine, live: LiveJob) -> list[str]:
    others = len(machine.queues[live.engine].projects) - 1
    if not others:
        return []
    who = "another project" if others == 1 else f"{others} other projects"
    return [
        f"Jobs of {who} wait too: at equal priority, the project that uses the least for its weight is next."
    ]


def _preempted_jobs(machine: StateMachine, live: LiveJob, is_head: bool) -> list[str]:
    """The jobs that are preempted for it, or would be if it were next."""
    pool, ending = machine.pools[live.engine], machine.placed.ending_on(live.engine)
    if fits_soon(live, pool, ending):
        return [f"There will be room when these have ended: {_names(live, ending)}."] if is_head else []
    candidates = machine.placed.preemptible_on(live.engine, below=live.job.priority)
    preempted = victims(live, pool, ending, candidates)
    return [f"When it is next, it preempts {_names(live, preempted)}."] if preempted else []


def _names(live: LiveJob, others: Sequence[LiveJob]) -> str:
    return ", ".join(name_for(live.job, other.job) for other in others)


def _time(at: int) -> str:
    return f"{datetime.fromtimestamp(at // SECOND, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _needs(need: Share, free: Share, total: Share) -> str:
    parts = [
        f"{_cores(need)} of {_cores(total)} CPUs ({_cores(free)} free)",
        f"{_gib(need.memory)} of {_gib(total.memory)} memory ({_gib(max(0, free.memory))} free)",
    ]
    if need.gpus:
        parts.append(f"{need.gpus} of {total.gpus} GPUs ({free.gpus} free)")
    return f"It needs {', '.join(parts)}."


def _holders(machine: StateMachine, live: LiveJob, short: dict[str, float]) -> list[str]:
    """The running jobs that hold the missing resources, the longest-running first."""
    places = [place for place, what in enumerate(_RESOURCES) if what in short]
    holders = [other for other in machine.placed.on(live.engine) if _holds(other, places)]
    holding: list[str] = []
    for other in nsmallest(_NAMED, holders, key=lambda other: rank(other.job)):
        holds = _short(other.held, NOTHING)
        held = [_amount(what, holds[what]) for what in short if what in holds]
        holding.append(f"{name_for(live.job, other.job)} holds {' and '.join(held)}")
    missing = " and ".join(_amount(what, amount) for what, amount in short.items())
    if not holding:
        return [f"It starts when {missing} more are free."]
    more = f" ({len(holders) - _NAMED} more jobs hold some)" if len(holders) > _NAMED else ""
    return [f"It starts when {missing} more are free: {', '.join(holding)}{more}."]


def _holds(live: LiveJob, places: list[int]) -> bool:
    """Whether it holds some of the resources at these places of a share."""
    return any(one.share[place] > 0 for one in live.placement.values() for place in places)


def _amount(what: str, amount: float) -> str:
    match what:
        case "memory":
            return f"{_gib(amount)} of memory"
        case "gpus":
            return f"{_number(amount)} GPU" + ("s" if amount != 1 else "")
        case _:
            return f"{_number(amount)} CPU" + ("s" if amount != 1 else "")


def _cores(share: Share) -> str:
    return _number(max(0, share.millicores) / CORE)


def _gib(amount: float) -> str:
    return f"{amount / GIB:.1f} GiB".replace(".0 GiB", " GiB")


def _number(amount: float) -> str:
    return f"{amount:g}"
