"""Taking over from an earlier keeper: what its journal says, and what became of it since."""

import os
import time
import traceback

from . import processes
from .journal import Line
from .keep import Keeper
from .replica import LOST, Gang, Replica
from .say import say


def recover(keeper: Keeper) -> None:
    """Whatever is wrong with one replica is the end of that one only: a keeper that cannot start helps nobody."""
    now = processes.boot_id()
    _read(keeper)
    keeper.journal.append({"boot": now})
    unknown = [r for gang in keeper.gangs.values() for r in gang.replicas.values() if not r.ended]
    # A look through the whole of /proc, so only if there is one of whom nothing else is known.
    marked = processes.marked() if any(not replica.pid for replica in unknown) else {}
    for replica in unknown:
        try:
            _recover(keeper, replica, now, marked)
        except Exception as error:  # noqa: BLE001
            say(f"{replica.key} cannot be taken over: {traceback.format_exc()}")
            _give_up(keeper, replica, error)


def _read(keeper: Keeper) -> None:
    boot = ""
    for line in keeper.journal.read():
        try:
            if "boot" in line:
                boot = str(line["boot"])
            else:
                _apply(keeper, line, boot)
        except Exception as error:  # noqa: BLE001
            say(f"a line of the journal makes no sense and is skipped: {str(line)[:200]}: {error!r}")


def _apply(keeper: Keeper, line: Line, boot: str) -> None:
    match line:
        case {"claim": {"a": str(attempt), "note": dict(), "replicas": dict()} as claim}:
            gang = keeper.gangs[attempt] = Gang(attempt, claim, keeper.attempts)
            for replica in gang.replicas.values():
                replica.boot = boot
        case {"again": [attempt, name, int(restarts)]}:
            gang = keeper.gangs[attempt]
            gang.again(name, restarts).boot = boot
            gang.lines.append(line)
        case {"tomb": str(attempt)}:
            keeper.tombs.add(attempt)
        case {"forgotten": str(attempt)}:
            keeper.gangs.pop(attempt, None)
            keeper.tombs.discard(attempt)
        case (
            {"started": [attempt, *_]}
            | {"stop": [attempt, *_]}
            | {"ended": [attempt, *_]}
            | {"trimmed": [attempt, *_]}
            | {"pump": [attempt, *_]}
        ):
            _apply_to(keeper.gangs[attempt], line)
        case _:
            raise ValueError("unknown")


def _apply_to(gang: Gang, line: Line) -> None:
    """A line about a gang that was claimed before. The service will be told it, so it must be as one of ours."""
    match line:
        case {"started": [_, name, int(pid), int(start), int(at), int(slot), *_]}:
            replica = gang.replicas[name]
            replica.pid, replica.start, replica.at, replica.slot_number = pid, start, at, slot
            replica.since = replica.since or at
        case {"stop": [_, [*names], str(cause), int(kill_at)]}:
            for replica in [gang.replicas[name] for name in names]:
                replica.kill_at = kill_at
                replica.cause = replica.cause or cause
        case {"ended": [_, name, int(), str(), _, _, str(), *_]}:
            gang.replicas[name].ended = True
        case {"trimmed": [_, name, int(), str()]}:
            gang.replicas[name].trimmed = True
        case {"pump": [_, name, int(pid), int(start)]}:
            gang.replicas[name].pump = (pid, start)
        case _:
            raise ValueError("not as it should be")
    gang.lines.append(line)


def _recover(keeper: Keeper, replica: Replica, boot: str, marked: dict[str, list[int]]) -> None:
    if replica.boot != boot:
        keeper.end(replica, LOST, message=f"{replica.name} was lost when the machine restarted")
        return
    if not replica.pid:
        _find(keeper, replica, marked)
    if not replica.pid and replica.restarts:
        # The service asks for it again.
        replica.gang.not_again(replica)
        return
    _take_over(keeper, replica)


def _find(keeper: Keeper, replica: Replica, marked: dict[str, list[int]]) -> None:
    """Claimed, but the earlier keeper did not get to say that it started it. The oldest process is the main one."""
    for pid in marked.get(replica.key, [])[:1]:
        start = processes.start_time(pid)
        if start is None:
            return
        replica.pid, replica.start, replica.at = pid, start, time.time_ns()
        replica.since = replica.since or replica.at
        keeper.record(replica.gang, replica.started_line)


def _take_over(keeper: Keeper, replica: Replica) -> None:
    if os.path.isdir(replica.directory):
        try:
            keeper.open_log(replica)
            keeper.listen(replica)
        except OSError as error:
            say(f"{replica.key} goes on without all of its logs: {error}")
    if keeper.slots and replica.slot_number >= 0:
        replica.slot = keeper.slots.retake(replica.slot_number)
    keeper.adopt(replica, processes.open_pidfd(replica.pid, replica.start) if replica.pid else None)


def _give_up(keeper: Keeper, replica: Replica, error: Exception) -> None:
    if replica.ended:
        return
    processes.end_trees(processes.marked().get(replica.key, []))
    keeper.end(replica, LOST, message=f"{replica.name} could not be taken over by the next keeper: {error}")
