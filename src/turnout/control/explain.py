"""Why a job waits: what is missing, its place in the queue, and what would let it start."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

from turnout.control.live import SECOND, Live
from turnout.control.machine import Machine
from turnout.control.placing import name_for
from turnout.control.preempt import fits_soon, victims
from turnout.control.queue import rank
from turnout.job import State
from turnout.job.resources import GIB, Share


class Explanation(NamedTuple):
    why: list[str]
    place: int | None = None
    """In the queue, from 1 on."""
    waiting: int = 0
    missing: Mapping[str, float] = MappingProxyType({})
    """How much more of `cpu`, `memory` (bytes) and `gpus` would have to be free."""
    gives_up_at: int | None = None
    """When it fails if it still waits then."""


def explain(machine: Machine, live: Live) -> Explanation:
    if live.searches and live.job.state is not State.STOPPING:
        return _explain_search(machine, live)
    match live.job.state:
        case State.QUEUED:
            return _explain_waiting(machine, live)
        case State.PREPARING:
            return Explanation(["It has its place; its processes are being started."])
        case State.STOPPING:
            return Explanation([f"It is being ended: {live.job.message}."])
        case _:
            return Explanation(["It is running."])


def _explain_search(machine: Machine, live: Live) -> Explanation:
    """It waits for what its trials wait for."""
    trials = [machine.jobs[trial.child] for trial in live.trials.values() if trial.child in machine.jobs]
    running = sum(trial.job.state is State.RUNNING for trial in trials)
    waiting = next((trial for trial in trials if trial.job.state is State.QUEUED), None)
    if live.job.state is not State.RUNNING:
        why = [
            "Its first trial has not started yet." if trials else "Its first trial has not been chosen yet."
        ]
    else:
        why = [f"It is running: {running} of its trials at the moment.", *_so_far(live)]
    if waiting is None:
        return Explanation(why)
    told = explain(machine, waiting)
    return told._replace(why=[*why, f"Its trial {waiting.job.name} waits.", *told.why])


def _so_far(live: Live) -> list[str]:
    return [f"So far, the {live.job.message}."] if live.job.message else []


def _explain_waiting(machine: Machine, live: Live) -> Explanation:
    order = list(machine.queues[live.engine])
    place = next(n for n, waiting in enumerate(order, 1) if waiting.job_id == live.job.id)
    again = [f"Attempt {past.attempt} ended: {past.message}." for past in live.past[-1:]]
    if live.engine not in machine.ready:
        why = f"The engine {live.engine} has not told yet what it runs; nothing is placed on it before that."
        return Explanation([*again, why], place, len(order))
    pool = machine.pools[live.engine]
    need = pool.need(live.share)
    short = {k: v for k, v in (need - pool.room)._asdict().items() if v > 0}
    why = [*again, _needs(need, pool.room, pool.total)]
    if need.gpus > pool.total.gpus:
        why.append(f"It can never start: it needs {need.gpus} GPUs, and there are {pool.total.gpus}.")
    elif short:
        why += _holders(machine, live, short) + _who_goes(machine, live, first=place == 1)
    if place > 1:
        why += _ahead(live, [machine.jobs[waiting.job_id] for waiting in order[: place - 1]], len(order))
        if not short:
            head = name_for(live.job, machine.jobs[order[0].job_id].job)
            why.append(f"There is room for it now, but starting it could delay {head}, which is next.")
    if live.gives_up_at is not None:
        why.append(f"It gives up at {_time(live.gives_up_at)} if it still waits then.")
    return Explanation(why, place, len(order), short, live.gives_up_at)


def _ahead(live: Live, ahead: list[Live], waiting: int) -> list[str]:
    names = ", ".join(name_for(live.job, other.job) for other in ahead[:3]) + (
        ", …" if len(ahead) > 3 else ""
    )
    return [f"{len(ahead)} of {waiting} waiting jobs are ahead of it: {names}."]


def _who_goes(machine: Machine, live: Live, first: bool) -> list[str]:
    """Whose place it gets, or would get if it were next."""
    pool, placed = machine.pools[live.engine], machine.placed_on(live.engine)
    if fits_soon(live, pool, placed):
        going = [other for other in placed if other.verdict and other.placement]
        return [f"There will be room when these have ended: {_names(live, going)}."] if first else []
    going = victims(live, pool, placed)
    return [f"When it is next, it takes the place of {_names(live, going)}."] if going else []


def _names(live: Live, others: Sequence[Live]) -> str:
    return ", ".join(name_for(live.job, other.job) for other in others)


def _time(at: int) -> str:
    return f"{datetime.fromtimestamp(at // SECOND, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _needs(need: Share, room: Share, total: Share) -> str:
    parts = [
        f"{_number(need.cpu)} of {_number(total.cpu)} CPUs ({_number(max(0, room.cpu))} free)",
        f"{_gib(need.memory)} of {_gib(total.memory)} memory ({_gib(max(0, room.memory))} free)",
    ]
    if need.gpus:
        parts.append(f"{need.gpus} of {total.gpus} GPUs ({room.gpus} free)")
    return f"It needs {', '.join(parts)}."


def _holders(machine: Machine, live: Live, short: dict[str, float]) -> list[str]:
    """The running jobs that hold what is missing, the longest-running first."""
    running = [other for other in machine.jobs.values() if other.engine == live.engine and other.placement]
    holding: list[str] = []
    for other in sorted(running, key=lambda other: rank(other.job)):
        share = other.held
        held = [_amount(what, getattr(share, what)) for what in short if getattr(share, what)]
        if held:
            holding.append(f"{name_for(live.job, other.job)} holds {' and '.join(held)}")
    missing = " and ".join(_amount(what, amount) for what, amount in short.items())
    if not holding:
        return [f"It starts when {missing} more are free."]
    more = f" ({len(holding) - 3} more jobs hold some)" if len(holding) > 3 else ""
    return [f"It starts when {missing} more are free: {', '.join(holding[:3])}{more}."]


def _amount(what: str, amount: float) -> str:
    match what:
        case "memory":
            return f"{_gib(amount)} of memory"
        case "gpus":
            return f"{_number(amount)} GPU" + ("s" if amount != 1 else "")
        case _:
            return f"{_number(amount)} CPU" + ("s" if amount != 1 else "")


def _gib(amount: float) -> str:
    return f"{amount / GIB:.1f} GiB".replace(".0 GiB", " GiB")


def _number(amount: float) -> str:
    return f"{amount:g}"
