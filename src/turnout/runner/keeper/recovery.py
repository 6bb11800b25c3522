"""Taking over from an earlier keeper: what its journal says, and what became of it since."""

import os
import time

from . import processes
from .journal import Line
from .keep import Keeper
from .replica import LOST, Gang, Replica


def recover(keeper: Keeper) -> None:
    now = processes.boot_id()
    _read(keeper)
    keeper.journal.append({"boot": now})
    unknown = [r for gang in keeper.gangs.values() for r in gang.replicas.values() if not r.ended]
    marked: dict[str, list[int]] | None = None
    for replica in unknown:
        if replica.gang.boot != now:
            keeper.end(replica, LOST, message=f"{replica.name} was lost when the machine restarted")
            continue
        if not replica.pid:
            marked = processes.marked() if marked is None else marked
            _find(keeper, replica, marked)
        _take_over(keeper, replica)


def _read(keeper: Keeper) -> None:
    boot = ""
    for line in keeper.journal.read():
        match line:
            case {"boot": str(boot)}:
                pass
            case {"claim": claim}:
                gang = keeper.gangs[claim["a"]] = Gang(claim["a"], claim, keeper.attempts)
                gang.boot = boot
            case {"tomb": attempt}:
                keeper.tombs.add(attempt)
            case {"forgotten": attempt}:
                keeper.gangs.pop(attempt, None)
                keeper.tombs.discard(attempt)
            case _:
                _apply(keeper, line)


def _apply(keeper: Keeper, line: Line) -> None:
    """A line about a gang that was claimed before."""
    ((kind, (attempt, *rest)),) = line.items()
    gang = keeper.gangs.get(attempt)
    if gang is None:
        return
    gang.lines.append(line)
    if kind == "stop":
        names, cause, kill_at = rest
        for name in names:
            gang.replicas[name].kill_at = kill_at
            gang.replicas[name].cause = gang.replicas[name].cause or cause
        return
    replica = gang.replicas[rest[0]]
    if kind == "started":
        replica.pid, replica.start, replica.at, replica.slot_number = rest[1:]
    elif kind == "ended":
        replica.ended = True
    elif kind == "trimmed":
        replica.trimmed = True


def _find(keeper: Keeper, replica: Replica, marked: dict[str, list[int]]) -> None:
    """Claimed, but the earlier keeper did not get to say that it started it. The oldest process is the main one."""
    for pid in marked.get(replica.key, [])[:1]:
        start = processes.start_time(pid)
        if start is None:
            return
        replica.pid, replica.start, replica.at = pid, start, time.time_ns()
        keeper.record(replica.gang, replica.started_line)


def _take_over(keeper: Keeper, replica: Replica) -> None:
    if os.path.isdir(replica.directory):
        keeper.open_log(replica)
    if keeper.slots and replica.slot_number >= 0:
        replica.slot = keeper.slots.retake(replica.slot_number)
    keeper.adopt(replica, processes.open_pidfd(replica.pid, replica.start) if replica.pid else None)
