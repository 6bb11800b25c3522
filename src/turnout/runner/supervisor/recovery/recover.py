"""Takes over from an earlier supervisor: reads its journal, and finds out what happened since."""

import contextlib
import os
import time
import traceback

from .. import procfs
from ..diagnostics import log_message
from ..gang import LOST, Gang, Replica, open_status, restart_line
from ..loop import steady_clock
from ..replicas.spares import BOX, is_pending
from ..replicas.spawn import STATUS_FD
from ..supervisor import Supervisor
from . import unclaimed
from .journal import Line, encode
from .unclaimed import Strays

Marked = dict[str, list[int]]
"""The processes of each replica, from `procfs.marked_processes`."""


def recover(supervisor: Supervisor) -> None:
    """A failure affects one replica only: the supervisor must start in any case."""
    strays, copied = _read_journal(supervisor)
    if copied:
        _report_as_lost(supervisor)
        return
    # This searches all of /proc, so only if an earlier supervisor may have left something.
    search = (
        strays
        or any(not r.pid for r in _not_ended(supervisor))
        or unclaimed.any_directory(supervisor.attempts)
    )
    marked = procfs.marked_processes() if search else {}
    _release_never_ran(supervisor, marked)
    supervisor.journal.append(supervisor.boot_line)
    not_ended = _not_ended(supervisor)
    for replica in not_ended:
        try:
            _recover(supervisor, replica, marked)
        except Exception as error:  # noqa: BLE001
            log_message(f"{replica.key} cannot be adopted: {traceback.format_exc()}")
            _give_up(supervisor, replica, error)
    for replica in [r for gang in supervisor.gangs.values() for r in gang.replicas.values()]:
        if replica.ended and replica.key in marked and replica not in not_ended:
            _kill_unrecorded_restart(supervisor, replica, marked[replica.key])
    for attempt, names in unclaimed.find(supervisor, strays, marked).items():
        try:
            _kill_unclaimed(supervisor, attempt, names, strays.get(attempt, []), marked)
        except Exception:  # noqa: BLE001
            log_message(f"what is left of {attempt} cannot be killed: {traceback.format_exc()}")
    if supervisor.journal.bad or strays or any(replica.awaiting_start for replica in not_ended):
        supervisor.compact()
    supervisor.networks.adopt(supervisor.gangs)


def _read_journal(supervisor: Supervisor) -> tuple[Strays, bool]:
    """Applies all lines. Returns those about attempts without a claim, and whether the directory is a copy of the one
    that the journal is about, made since this machine started.
    """
    boot, place = "", supervisor.place
    strays: Strays = {}
    for line in supervisor.journal.read():
        try:
            if "boot" in line:
                boot, place = str(line["boot"]), line.get("place", supervisor.place)
            elif (attempt := unclaimed.attempt_of(line)) and attempt not in supervisor.gangs:
                strays.setdefault(attempt, []).append(line)
            else:
                _apply(supervisor, line, boot)
                strays.pop(str(line.get("forgotten")), None)
        except Exception as error:  # noqa: BLE001
            log_message(f"a line of the journal is malformed and is skipped: {str(line)[:200]}: {error!r}")
            supervisor.journal.set_aside(encode(line).encode())
    # Some have a claim that an earlier supervisor made for them.
    strays = {attempt: lines for attempt, lines in strays.items() if attempt not in supervisor.gangs}
    return strays, place != supervisor.place and boot == supervisor.boot


def _report_as_lost(supervisor: Supervisor) -> None:
    """The supervisor of the original directory has the processes of this journal: here they are reported as lost."""
    log_message("this directory is a copy: the jobs that its journal names are left to the original")
    supervisor.journal.append(supervisor.boot_line)
    for replica in _not_ended(supervisor):
        replica.pid, replica.encrypter, replica.slot_number = 0, (0, 0), -1
        message = f"{replica.name} runs in the data directory of which this one is a copy"
        supervisor.end(replica, LOST, message=message)


def _not_ended(supervisor: Supervisor) -> list[Replica]:
    return [r for gang in supervisor.gangs.values() for r in gang.replicas.values() if not r.ended]


def _release_never_ran(supervisor: Supervisor, marked: Marked) -> None:
    """Releases replicas that were claimed and never ran: the service asks for them again. If that is a whole gang, its
    claim is forgotten.
    """
    for attempt, gang in list(supervisor.gangs.items()):
        first = [r for r in gang.replicas.values() if not (r.restarts or r.cause)]
        never_ran = [replica for replica in first if _never_ran(supervisor, replica, marked)]
        for replica in never_ran:
            log_message(f"{replica.key} was claimed and never ran")
            supervisor.spares.discard(replica.directory, logs=False)
            replica.starting, replica.encrypter, replica.awaiting_start = False, (0, 0), True
        if len(never_ran) == len(gang.replicas):
            supervisor.journal.append({"forgotten": attempt})
            del supervisor.gangs[attempt]


def _never_ran(supervisor: Supervisor, replica: Replica, marked: Marked) -> bool:
    """True only if that is certain."""
    if replica.pid or replica.ended or replica.boot != supervisor.boot or replica.key in marked:
        return False
    if unclaimed.damage_may_hide_start(supervisor.journal.bad, replica.gang.attempt):
        # The line that recorded its start may be a damaged one.
        return False
    if not replica.gang.journals_starts:
        return replica.restarts > 0 or not os.path.lexists(replica.directory)
    if not replica.starting:
        return True
    if replica.sandboxed:
        return _sandbox_never_began(replica)
    return replica.pending_file and is_pending(replica.directory)


def _sandbox_never_began(replica: Replica) -> bool:
    """Bubblewrap writes the status file before it lets the program run, and the file was emptied before the start."""
    with contextlib.suppress(OSError):
        return os.stat(f"{replica.directory}/{BOX}/status").st_size == 0
    return False


def _apply(supervisor: Supervisor, line: Line, boot: str) -> None:
    match line:
        case {"claim": {"a": str(attempt), "note": dict(), "replicas": dict()} as claim}:
            gang = supervisor.gangs[attempt] = Gang(attempt, claim, supervisor.attempts)
            for replica in gang.replicas.values():
                replica.boot = replica.boot or boot
        case {"again": [str(attempt), str(name), int(restarts)]}:
            gang = supervisor.gangs[attempt]
            gang.restart(name, restarts, str(line.get("in", boot)))
            gang.lines.append(line)
        case {"tomb": str(attempt)}:
            supervisor.tombstones.add(attempt)
        case {"forgotten": str(attempt)}:
            supervisor.gangs.pop(attempt, None)
            supervisor.tombstones.discard(attempt)
        case (
            {"starting": [attempt, *_]}
            | {"started": [attempt, *_]}
            | {"stop": [attempt, *_]}
            | {"ended": [attempt, *_]}
            | {"trimmed": [attempt, *_]}
            | {"pump": [attempt, *_]}
        ):
            _apply_to(supervisor.gangs[attempt], line, boot)
        case _:
            raise ValueError("unknown")


def _apply_to(gang: Gang, line: Line, boot: str) -> None:
    """Applies a line about a claimed gang. The service will get the line, so it must be well-formed."""
    match line:
        case {"starting": [_, str(name), *suffix]}:
            # The service does not need it.
            replica = _replica_of_start(gang, name, suffix, boot)
            replica.starting, replica.pending_file = True, line.get("pending") is True
            return
        case {"started": [_, str(name), int(pid), int(start), int(at), int(slot), *suffix]}:
            replica = _replica_of_start(gang, name, suffix, boot)
            replica.pid, replica.start_time, replica.slot_number = pid, start, slot
            replica.started_at = gang.timestamp(at)
            replica.first_started_at = replica.first_started_at or at
            replica.first_started_clock = replica.first_started_clock or (
                0.0 if replica.restarts else procfs.to_seconds(start)
            )
        case {"stop": [_, [*names], str(cause), int(kill_at)]}:
            kill_by = _deadline(line, kill_at)
            for replica in [gang.replicas[name] for name in names]:
                replica.kill_deadline = kill_by
                if not replica.cause:
                    replica.cause, replica.cause_detail = cause, str(line.get("why", ""))
        case {"ended": [_, str(name), int(at), str(), _, _, str(), *suffix]}:
            _replica_of_start(gang, name, suffix, boot).ended = True
            gang.timestamp(at)
        case {"trimmed": [_, name, int(at), str()]}:
            gang.replicas[name].trimmed = True
            gang.timestamp(at)
        case {"pump": [_, name, int(pid), int(start)]}:
            gang.replicas[name].encrypter = (pid, start)
        case _:
            raise ValueError("malformed")
    gang.lines.append(line)


def _deadline(line: Line, kill_at: int) -> float:
    """By the steady clock. Older versions wrote only `kill_at`. After a reboot nothing is left to kill."""
    match line:
        case {"by": float(by)}:
            return by
    return steady_clock() + max(0.0, kill_at / 1e9 - time.time())


def _replica_of_start(gang: Gang, name: str, suffix: list[int], boot: str) -> Replica:
    """The start that a line is about, even if the line that began it is lost."""
    replica, restarts = gang.replicas[name], suffix[0] if suffix else 0
    if restarts < replica.restarts:
        raise ValueError("about an earlier start")
    if restarts > replica.restarts:
        replica = gang.restart(name, int(restarts), boot or replica.boot)
        gang.lines.append(restart_line(replica))
    return replica


def _recover(supervisor: Supervisor, replica: Replica, marked: Marked) -> None:
    if replica.awaiting_start:
        return
    if replica.boot != supervisor.boot and replica.key not in marked:
        supervisor.end(replica, LOST, message=f"{replica.name} was lost when the machine restarted")
        return
    if not replica.pid:
        _find_process(supervisor, replica, marked)
    if not replica.pid and replica.restarts:
        if _never_ran(supervisor, replica, marked):
            # The service asks for it again.
            replica.gang.undo_restart(replica)
            return
        if not replica.starting:
            # It may have run: the line that recorded its start may be a damaged one.
            supervisor.end(replica, LOST, message=f"{replica.name} was lost: {unclaimed.DAMAGED}")
            return
    _adopt(supervisor, replica)


def _find_process(supervisor: Supervisor, replica: Replica, marked: Marked) -> None:
    """Finds the process of a replica that has no `started` line. The oldest process is the main one."""
    for pid in marked.get(replica.key, [])[:1]:
        start = procfs.start_time(pid)
        if start is None:
            return
        replica.pid, replica.start_time, replica.started_at = pid, start, replica.gang.timestamp()
        replica.first_started_at = replica.first_started_at or replica.started_at
        replica.first_started_clock = replica.first_started_clock or (
            0.0 if replica.restarts else procfs.to_seconds(start)
        )
        replica.slot_number = supervisor.slots.number_of(pid) if supervisor.slots else -1
        supervisor.record(replica.gang, replica.started_line)


def _adopt(supervisor: Supervisor, replica: Replica) -> None:
    if replica.sandboxed:
        open_status(replica, STATUS_FD)
    if os.path.isdir(replica.directory):
        try:
            supervisor.logs.open(replica)
            supervisor.logs.read_pipes(replica)
        except OSError as error:
            log_message(f"{replica.key} is adopted without all of its logs: {error}")
    if supervisor.slots and replica.slot_number >= 0:
        replica.slot = supervisor.slots.adopt(replica.slot_number)
    supervisor.adopt(replica, procfs.open_pidfd(replica.pid, replica.start_time) if replica.pid else None)


def _give_up(supervisor: Supervisor, replica: Replica, error: Exception) -> None:
    if replica.ended:
        return
    procfs.kill_trees(procfs.marked_processes().get(replica.key, []))
    supervisor.end(
        replica, LOST, message=f"{replica.name} could not be adopted by the next supervisor: {error}"
    )


def _kill_unrecorded_restart(supervisor: Supervisor, replica: Replica, running: list[int]) -> None:
    """A replica that ended according to the journal is running: the lines about its restart are lost. It is killed."""
    log_message(f"{replica.key} is killed: {unclaimed.DAMAGED}")
    procfs.kill_and_wait(running)
    later = replica.gang.restart(replica.name, replica.restarts + 1, supervisor.boot)
    supervisor.record(replica.gang, restart_line(later))
    supervisor.end(later, LOST, message=f"{replica.name} was killed: {unclaimed.DAMAGED}")


def _kill_unclaimed(
    supervisor: Supervisor, attempt: str, names: list[str], lines: list[Line], marked: Marked
) -> None:
    """Kills what is left of a gang without a claim, because its limits, addresses and ports are unknown. Reports what
    is known of it.
    """
    gang = unclaimed.claim(supervisor, attempt, names)
    for line in lines:
        try:
            _apply(supervisor, line, "")
            supervisor.journal.append(line)
        except Exception as error:  # noqa: BLE001 as in `_read_journal`
            log_message(f"a line of the journal is malformed and is skipped: {str(line)[:200]}: {error!r}")
    for replica in gang.replicas.values():
        running = marked.get(replica.key, [])
        if running:
            log_message(f"{replica.key} is killed: {unclaimed.DAMAGED}")
            procfs.kill_and_wait(running)
        if running and not replica.ended:
            supervisor.end(replica, LOST, message=f"{replica.name} was killed: {unclaimed.DAMAGED}")
        elif not replica.ended:
            _adopt(supervisor, replica)
