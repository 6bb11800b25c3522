"""Everything that happens to a replica between claim and end."""

import os
import socket
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

from . import processes
from .cgroups import Slots
from .channel import VERSION, Channel, Message
from .ending import Endings
from .journal import Journal, Line, encode
from .limits import Limits
from .logs import Log, Outlets, Watcher
from .loop import READ, WRITE, Loop
from .point import point
from .replica import NOT_FOUND, STAGING, STOPPED, TIME_LIMIT, Gang, Replica, again_line
from .say import say
from .sealing import REMOVE, Pumps, SealedLog, wind_up
from .shells import Shells
from .spares import BOX, QUIET, SCRATCH, WORKSPACE, Spares
from .spawn import NotStarted, Plan, link, spawn

_LOOK_AGAIN = 0.001
_TRY_AGAIN = 1.0


class Keeper:
    """`directory` holds the journal; below `attempts` each replica has its directory."""

    def __init__(
        self,
        directory: str,
        attempts: str,
        listener: socket.socket,
        slots: Slots | None,
        open_files: int,
        sandbox: bool,
        pumps: Pumps,
    ) -> None:
        self.attempts = attempts
        self.journal = Journal(directory)
        self.loop = Loop()
        self.gangs: dict[str, Gang] = {}
        self.tombs: set[str] = set()
        self.slots = slots
        self._listener = listener
        self._limits = Limits(open_files)
        self._channel: Channel | None = None
        self._writing = False
        self._urgent = False
        """Something has ended: the service is told at once. All else waits until there is nothing to do."""
        self._work: deque[Callable[[], None]] = deque()
        """What the service has asked for, in its order. One piece at a time, so that ends are noticed in between."""
        self._watcher = Watcher()
        self._spares = Spares(attempts, sandbox)
        self._looking = 0
        self._unmarked: list[Log] = []
        """Of replicas that have ended, while the disk was full."""
        self._trying_again = False
        self._followed: set[str] = set()
        self._pumps = pumps
        self._winding_up: set[Replica] = set()
        """They have ended, and what they leave is being sealed and removed."""
        self._endings = Endings(self.loop, self.finish)
        self._shells = Shells(self.loop, self._limits, self._endings.watch_guest, self.send)

    def run(self) -> None:
        """Until nothing runs and no service is connected."""
        self._listener.setblocking(False)
        self.loop.on(self._listener.fileno(), self._accept)
        self.loop.on(self._watcher.fd, self._watcher.ready)
        self._endings.watch_children()
        while True:
            # The service that started us has knocked already; whoever comes after the last look finds nobody
            # and starts the next keeper.
            if not (self._channel or self._work or self._endings.running or self._winding_up):
                self._accept()
                self.journal.catch_up()
                if not self._channel and not self.journal.behind:
                    self._spares.close()
                    return
            self.loop.turn(self._do_one, self._spares.furnish)
            if self._urgent or not self._work:
                self._flush()
            if (self.journal.behind or self._unmarked) and not self._trying_again:
                self._trying_again = True
                self.loop.later(_TRY_AGAIN, self._try_again)

    def _try_again(self) -> None:
        """What a full disk has kept us from."""
        self._trying_again = False
        self.journal.catch_up()
        waiting, self._unmarked = self._unmarked, []
        for log in waiting:
            log.mark()
            self._put_away(log)

    # What the service says.

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        if self._channel:
            self._hang_up()
        self._channel = Channel(connection)
        self._writing = False
        self.loop.on(self._channel.fd, self._receive)

    def _receive(self) -> None:
        if not self._channel:
            return
        if self._writing:
            self._flush()
        if self._channel and not self._channel.receive(self._put):
            self._hang_up()

    def _put(self, message: Message) -> None:
        self._work.append(lambda: self._do(message))

    def _do_one(self) -> bool:
        if not self._work:
            return False
        try:
            self._work.popleft()()
        except Exception:  # noqa: BLE001 what one message asks for must not take with it what others have
            say(traceback.format_exc())
        return True

    def _do(self, message: Message) -> None:
        match message["t"]:
            case "hello":
                self._greet()
            case "launch":
                self._launch(message)
            case "again":
                self._again(message)
            case "stop":
                self._stop(message["a"], message["names"], message["grace"])
            case "forget":
                self._forget(message["a"], message["keep"])
            case "follow":
                self._follow(message["a"], message["on"])
            case "shell":
                gang = self.gangs.get(message["a"])
                replica = gang.replicas.get(message["name"]) if gang else None
                self._shells.open(message["id"], message["tty"], replica)

    def _follow(self, attempt: str, on: bool) -> None:
        if not on:
            self._followed.discard(attempt)
            return
        self._followed.add(attempt)
        # What grew since the other side looked was not told to anybody.
        self.send({"grew": attempt})

    def _greet(self) -> None:
        self._followed.clear()
        limits = self.slots.kind if self.slots else "rlimits"
        self.send({"hello": {"version": VERSION, "pid": os.getpid(), "limits": limits}})
        for gang in self.gangs.values():
            for line in gang.lines:
                self.send(line)
        self.send({"synced": True})

    def send(self, message: Message) -> None:
        if self._channel:
            self._channel.send(encode(message))

    def _flush(self) -> None:
        self._urgent = False
        if not self._channel:
            return
        try:
            done = self._channel.flush()
        except OSError:
            self._hang_up()
            return
        if done == self._writing:
            self._writing = not done
            self.loop.change(self._channel.fd, READ | WRITE if self._writing else READ)

    def _hang_up(self) -> None:
        if self._channel:
            self.loop.off(self._channel.fd)
            self._channel.close()
            self._channel = None

    # Starting.

    def _launch(self, message: Message) -> None:
        attempt: str = message["a"]
        known = self.gangs.get(attempt)
        if known:
            for line in known.lines[1:]:
                self.send(line)
            return
        plans: list[Plan] = [plan | {"shared": message["shared"]} for plan in message["replicas"]]
        claim = {
            "a": attempt,
            "note": message["note"],
            "limit": message["limit"],
            "grace": message["grace"],
            "log_bytes": message["log_bytes"],
            "replicas": {plan["name"]: "sandbox" in plan for plan in plans},
        }
        if "allowance" in message:
            claim["allowance"] = message["allowance"]
        if message["shared"].get("seal"):
            claim["sealed"] = True
        gang = self.gangs[attempt] = Gang(attempt, claim, self.attempts)
        self.journal.append(gang.lines[0])
        point("keeper.claimed")
        if attempt in self.tombs:
            for replica in gang.replicas.values():
                self.end(replica, STOPPED, message="it was stopped before it started")
            return
        starts = [lambda plan=plan: self._start(gang.replicas[plan["name"]], plan) for plan in plans]
        self._work.extendleft(reversed(starts))

    def _again(self, message: Message) -> None:
        """One that has ended, in its place. Idempotent by the number of the start."""
        name, restarts = message["replica"]["name"], message["restarts"]
        gang = self.gangs.get(message["a"])
        if gang is None or not gang.replicas[name].ended or gang.replicas[name].restarts >= restarts:
            return
        replica = gang.again(name, restarts)
        self.record(gang, again_line(replica))
        point("keeper.again")
        self._start(replica, message["replica"] | {"shared": message["shared"]})

    def _start(self, replica: Replica, plan: Plan) -> None:
        try:
            if replica.restarts:
                self._spares.mend(replica.directory)
            else:
                self._spares.move_in(replica.directory)
            self.loop.later(QUIET, _nothing)
            replica.dirs = tuple(plan.get("dirs", ()))
            self._spares.lay_out(replica.directory, replica.dirs)
            link(replica.directory, plan)
            self.open_log(replica)
            if isinstance(replica.log, SealedLog):
                self._pump(replica, replica.log, plan["shared"]["seal"])
            replica.slot = self.slots.take(plan) if self.slots else None
            began = processes.ticks()
            with self._limits.around(plan, replica.slot):
                replica.pid = spawn(replica, plan)
            replica.plan = plan if plan.get("shell") else None
        except NotStarted as error:
            self.end(replica, NOT_FOUND, code=error.code, message=str(error))
            return
        except Exception as error:  # noqa: BLE001 a plan that cannot be carried out must not take the others with it
            self.end(replica, STAGING, message=f"{replica.name} could not be started: {error}")
            return
        replica.start = processes.start_time_after(began, replica.pid) or 0
        replica.at = time.time_ns()
        replica.since = replica.since or replica.at
        self._endings.watch(replica)
        self.listen(replica)
        self._limit(replica)
        replica.slot_number = replica.slot.number if replica.slot else -1
        point("keeper.respawned" if replica.restarts else "keeper.spawned")
        self.record(replica.gang, replica.started_line)

    def adopt(self, replica: Replica, pidfd: int | None) -> None:
        """One that an earlier keeper started; None: it is gone already."""
        self._endings.adopt(replica, pidfd)
        if pidfd is None:
            return
        self._limit(replica)
        if replica.kill_at:
            self._endings.stop(replica, replica.cause, replica.kill_at)

    def _limit(self, replica: Replica) -> None:
        """Its time limit counts from its first start, also if it or the keeper was started again meanwhile."""
        if replica.gang.limit is None:
            return
        over = replica.since / 1e9 + replica.gang.limit
        self.loop.later(over - time.time(), lambda: self._time_up(replica))

    def _time_up(self, replica: Replica) -> None:
        if replica.ended or replica.exit:
            return
        self._stop_these(replica.gang, [replica], TIME_LIMIT, replica.gang.grace)

    # Logs.

    def open_log(self, replica: Replica) -> None:
        if replica.gang.sealed:
            replica.log = SealedLog(replica.directory, replica.gang.log_bytes)
            replica.log.adopt(*replica.pump)
        else:
            replica.log = Log(replica.directory, replica.gang.log_bytes)
        # Not at once: of one that has ended by then only the last mark is wanted.
        self.loop.later(2 * _LOOK_AGAIN, lambda: self._rearm(replica))

    def _pump(self, replica: Replica, log: SealedLog, key: dict[str, str]) -> None:
        log.pump(self._pumps, key, replica.sandboxed)
        self._endings.watch_own(log.pid)
        self.record(replica.gang, {"pump": [replica.gang.attempt, replica.name, log.pid, log.start]})

    def listen(self, replica: Replica) -> None:
        """To what comes out of its pipes. Whoever opens one before that waits."""
        if isinstance(replica.log, Log) and replica.sandboxed:
            outlets = replica.outlets = Outlets(f"{replica.directory}/{BOX}/out", replica.log)
            for number, fd in enumerate(outlets.fds):
                self.loop.on(fd, lambda number=number: self._pour(replica, outlets, number))

    def _pour(self, replica: Replica, outlets: Outlets, number: int) -> None:
        """On a full disk the pipe is left alone for a while: who writes into it waits."""
        if not outlets.pour(number):
            self.loop.change(outlets.fds[number], 0)
            self.loop.later(_TRY_AGAIN, lambda: self._pour_again(replica, outlets, number))

    def _pour_again(self, replica: Replica, outlets: Outlets, number: int) -> None:
        if replica.outlets is outlets:
            self.loop.change(outlets.fds[number], READ)
            self._pour(replica, outlets, number)

    def _wrote(self, replica: Replica) -> None:
        replica.watch = -1
        self._look(replica)
        # With many that print without pause each is looked at less often: the work stays the same.
        self._looking += 1
        self.loop.later(_LOOK_AGAIN * max(1, self._looking // 8), lambda: self._look_again(replica))

    def _look_again(self, replica: Replica) -> None:
        self._looking -= 1
        self._rearm(replica)

    def _rearm(self, replica: Replica) -> None:
        if replica.log is None or replica.ended:
            return
        # First the watch, then the look: what is written in between is seen by one of them.
        replica.watch = self._watcher.arm(replica.directory, lambda: self._wrote(replica))
        self._look(replica)

    def _look(self, replica: Replica) -> None:
        log, attempt = replica.log, replica.gang.attempt
        if log is None or not log.mark():
            return
        if attempt in self._followed:
            self.send({"grew": attempt})
        if log.trim() and not replica.trimmed:
            replica.trimmed = True
            kept = "its first MiB and its newest part are kept"
            message = f"the log of {replica.name} grew beyond {log.limit} bytes: {kept}"
            self.record(replica.gang, {"trimmed": [attempt, replica.name, time.time_ns(), message]})

    def _close_log(self, replica: Replica) -> None:
        if replica.outlets:
            for fd in replica.outlets.fds:
                self.loop.off(fd)
            replica.outlets.close()
            replica.outlets = None
        if replica.log:
            self._look(replica)
            self._put_away(replica.log)
            replica.log = None

    def _put_away(self, log: Log | SealedLog) -> None:
        if isinstance(log, Log) and log.behind:
            self._unmarked.append(log)
        else:
            log.close()

    # Stopping and ending.

    def _stop(self, attempt: str, names: list[str], grace: float) -> None:
        gang = self.gangs.get(attempt)
        if gang is None:
            if attempt not in self.tombs:
                self.tombs.add(attempt)
                self.journal.append({"tomb": attempt})
            return
        chosen = (
            [gang.replicas[name] for name in names if name in gang.replicas]
            if names
            else gang.replicas.values()
        )
        self._stop_these(gang, [replica for replica in chosen if not replica.ended], STOPPED, grace)

    def _stop_these(self, gang: Gang, replicas: list[Replica], cause: str, grace: float) -> None:
        kill_at = time.time_ns() + int(grace * 1e9)
        fresh = [replica for replica in replicas if not replica.kill_at or kill_at < replica.kill_at]
        if not fresh:
            return
        self.record(gang, {"stop": [gang.attempt, [replica.name for replica in fresh], cause, kill_at]})
        for replica in fresh:
            self._endings.stop(replica, cause, kill_at)

    def finish(self, replica: Replica, cause: str, message: str = "", at: int = 0) -> None:
        """Its process and all that it left are gone: `replica.exit` says how it ended, if that is known."""
        if replica.ended:
            return
        code, number = replica.exit or (None, None)
        self.end(replica, cause, code, number, message, at)

    def end(
        self,
        replica: Replica,
        cause: str,
        code: int | None = None,
        number: int | None = None,
        message: str = "",
        at: int = 0,
    ) -> None:
        replica.ended = True
        self._watcher.disarm(replica.watch)
        ended = [replica.gang.attempt, replica.name, at, cause, code, number, message]
        if replica.gang.sealed:
            self._winding_up.add(replica)
            told, own = lambda: self._told(replica, ended), self._endings.watch_own
            wind_up(replica.directory, replica.log, self.loop, own, told)
        else:
            self._told(replica, ended)

    def _told(self, replica: Replica, ended: list[Any]) -> None:
        """The last that is done for it: all that it printed is on disk."""
        self._winding_up.discard(replica)
        self._close_log(replica)
        if replica.slot and self.slots:
            self.slots.give_back(replica.slot)
            replica.slot = None
        point("keeper.ending")
        self._urgent = True
        ended[2] = ended[2] or time.time_ns()
        self.record(replica.gang, {"ended": ended + replica.which})

    def record(self, gang: Gang, *lines: Line) -> None:
        """Into the journal first, then to the service."""
        texts = [encode(line) for line in lines]
        self.journal.append_encoded([encode(gang.kept(line)) for line in lines] if gang.sealed else texts)
        gang.lines += lines
        if self._channel:
            for text in texts:
                self._channel.send(text)

    # Forgetting.

    def _forget(self, attempt: str, keep_workspace: bool) -> None:
        gang = self.gangs.get(attempt)
        if gang and not gang.ended:
            return
        if gang is None and attempt not in self.tombs:
            return
        self.journal.append_later({"forgotten": attempt})
        self.gangs.pop(attempt, None)
        self.tombs.discard(attempt)
        self._followed.discard(attempt)
        if gang and not keep_workspace:
            self._remove_workspaces(gang)
        if self.journal.worth_compacting(sum(len(gang.lines) for gang in self.gangs.values())):
            self.compact()

    def _remove_workspaces(self, gang: Gang) -> None:
        """Empty directories are used again, the others go by a process: a big tree must not hold up the loop."""
        full: list[str] = []
        for replica in gang.replicas.values():
            if self._spares.take_back_all(replica.directory):
                continue
            self._spares.take_back_laid_out(replica.directory, replica.dirs)
            paths = (f"{replica.directory}/{name}" for name in (*WORKSPACE, SCRATCH))
            full += [path for path in paths if not self._spares.take_back(path)]
            if replica.sandboxed:
                self._spares.take_back_box(f"{replica.directory}/{BOX}")
        if full:
            argv = ["sh", "-c", REMOVE, "sh", *full]
            self._endings.watch_own(os.posix_spawn("/bin/sh", argv, {"PATH": "/usr/bin:/bin"}))

    def compact(self) -> None:
        lines: list[Line] = [{"boot": processes.boot_id()}]
        lines += [{"tomb": attempt} for attempt in self.tombs]
        for gang in self.gangs.values():
            lines += map(gang.kept, gang.lines)
        self.journal.rewrite(lines)


def _nothing() -> None:
    """To wake up is enough: when there is nothing else to do, spares are made."""
