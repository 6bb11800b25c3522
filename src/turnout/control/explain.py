"""Why a job waits: what is missing, its place in the queue, and what would let it start."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from turnout.control.machine import Machine
from turnout.control.queue import rank
from turnout.control.turn import Live
from turnout.job import State
from turnout.job.resources import GIB, Share


class Explanation(NamedTuple):
    why: list[str]
    place: int | None = None
    """In the queue, from 1 on."""
    waiting: int = 0
    missing: Mapping[str, float] = MappingProxyType({})
    """How much more of `cpu`, `memory` (bytes) and `gpus` would have to be free."""


def explain(machine: Machine, live: Live) -> Explanation:
    match live.job.state:
        case State.QUEUED:
            return _explain_waiting(machine, live)
        case State.PREPARING:
            return Explanation(["It has its place; its processes are being started."])
        case State.STOPPING:
            return Explanation([f"It is being ended: {live.job.message}."])
        case _:
            return Explanation(["It is running."])


def _explain_waiting(machine: Machine, live: Live) -> Explanation:
    order = list(machine.queues[live.engine])
    place = next(n for n, waiting in enumerate(order, 1) if waiting.job_id == live.job.id)
    if live.engine not in machine.ready:
        why = [
            f"The engine {live.engine} has not told yet what it runs; nothing is placed on it before that."
        ]
        return Explanation(why, place, len(order))
    pool = machine.pools[live.engine]
    need = pool.need(live.share)
    short = {k: v for k, v in (need - pool.room)._asdict().items() if v > 0}
    why = [_needs(need, pool.room, pool.total)]
    if need.gpus > pool.total.gpus:
        why.append(f"It can never start: it needs {need.gpus} GPUs, and there are {pool.total.gpus}.")
    elif short:
        why += _holders(machine, live, short)
    if place > 1:
        ahead = [machine.jobs[waiting.job_id].job for waiting in order[: place - 1]]
        names = ", ".join(job.name for job in ahead[:3]) + (", …" if len(ahead) > 3 else "")
        why.append(f"{place - 1} of {len(order)} waiting jobs are ahead of it: {names}.")
        if not short:
            why.append(
                f"There is room for it now, but starting it could delay {ahead[0].name}, which is next."
            )
    return Explanation(why, place, len(order), short)


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
        share = sum((seat.share for seat in other.placement.values()), Share(0, 0, 0))
        held = [_amount(what, getattr(share, what)) for what in short if getattr(share, what)]
        if held:
            holding.append(f"{other.job.name} holds {' and '.join(held)}")
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
