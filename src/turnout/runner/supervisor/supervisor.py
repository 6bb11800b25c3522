"""Carries out what the service asks for: starts gangs, stops them, records their ends, forgets them."""

import os
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from . import procfs
from .channel import VERSION, Message
from .chaos import kill_point
from .connection import ServiceConnection
from .diagnostics import run_safely
from .disk.watch import DISK_LIMIT, DiskWatch
from .gang import LOST, NOT_FOUND, STAGING, STOPPED, TIME_LIMIT, Gang, Replica, make_claim, restart_line
from .listeners.listeners import HeldListeners
from .logs.replica_logs import ReplicaLogs
from .logs.sealed_log import LogEncrypters
from .loop import Loop
from .network.networks import Networks
from .recovery.journal import Journal, Line, encode
from .replicas import users
from .replicas.cgroups import Slots
from .replicas.limits import InheritedLimits
from .replicas.processes import ReplicaProcesses
from .replicas.spares import QUIET, Spares, make_directories
from .replicas.spawn import NotStarted, Plan, make_links, spawn
from .shells import Shells

_RETRY_SECONDS = 1.0


class Supervisor:
    """`directory` contains the journal; below `attempts` each replica has its directory. `lock` is its lock file."""

    def __init__(
        self,
        directory: str,
        attempts: str,
        listener: socket.socket,
        slots: Slots | None,
        open_files: int,
        sandbox: bool,
        encrypters: LogEncrypters,
        lock: int = -1,
    ) -> None:
        self.attempts = attempts
        self.journal = Journal(directory)
        self.boot = procfs.boot_id()
        found = os.stat(directory)
        self.place = [found.st_dev, found.st_ino]
        """The directory, by what a copy of it has not."""
        self.loop = Loop()
        self.gangs: dict[str, Gang] = {}
        self.tombstones: set[str] = set()
        """Attempts that were stopped before they were launched: a launch that comes later ends at once."""
        self.slots = slots
        self.spares = Spares(attempts, sandbox)
        self._limits = InheritedLimits(open_files)
        self._listeners = HeldListeners(self.loop)
        self._connection = ServiceConnection(self.loop, listener, self._listeners, self._enqueue)
        self._urgent = False
        """A replica has ended: the service gets the message at once. Other messages wait until there is no work."""
        self._work: deque[Callable[[], None]] = deque()
        """What the service asked for, in order. It is done piece by piece, so that ends are noticed in between."""
        self._retrying = False
        self._finishing: set[Replica] = set()
        """Ended replicas whose log is being sealed and whose workspace is being removed."""
        self._processes = ReplicaProcesses(self.loop, self._on_process_end)
        watch_helper, send = self._processes.watch_helper, self._connection.send
        self.logs = ReplicaLogs(self.loop, encrypters, watch_helper, send, self.record)
        self._disk = DiskWatch(self.loop, attempts, self._stop_replicas, watch_helper)
        self.networks = Networks(directory, self.loop, watch_helper, send, lock)
        self._shells = Shells(self.loop, self._limits, self.networks, self._processes.watch_shell, send)

    def run(self) -> None:
        """Runs until no replica is left and no service is connected or expected back."""
        self._connection.listen()
        self._processes.start()
        self.spares.use_maker(self.loop, self._processes.watch_helper)
        while True:
            needed = self._connection.is_open or self._work or self._processes.running or self._finishing
            if not (needed or self._listeners.waiting) and self._may_exit():
                self._listeners.close()
                self.spares.close()
                self.networks.close()
                return
            self.loop.run_once(self._run_next, self._prepare_spares)
            if self._urgent or not self._work:
                self._urgent = False
                if not run_safely(self._connection.flush):
                    self._connection.close()
            if (self.journal.behind or self.logs.behind) and not self._retrying:
                self._retrying = True
                self.loop.call_later(_RETRY_SECONDS, self._retry_writes)

    def _may_exit(self) -> bool:
        # The service that started this supervisor may be in the listener's queue. One that connects after this finds
        # no supervisor, and starts the next one.
        run_safely(self._connection.accept)
        run_safely(self.journal.catch_up)
        return not self._connection.is_open and not self.journal.behind

    def _prepare_spares(self) -> bool:
        return self.spares.prepare() or self.networks.order_spare()

    def _retry_writes(self) -> None:
        """Writes what did not fit on a full disk."""
        self._retrying = False
        self.journal.catch_up()
        self.logs.catch_up()

    # What the service asks for.

    def _enqueue(self, message: Message) -> None:
        self._work.append(lambda: self._execute(message))

    def _run_next(self) -> bool:
        if not self._work:
            return False
        run_safely(self._work.popleft())
        return True

    def _execute(self, message: Message) -> None:
        match message["t"]:
            case "hello":
                self.networks.configure(message.get("network"))
                self._report_all()
            case "launch":
                self._launch(message)
            case "again":
                self._restart(message)
            case "stop":
                self._stop(message["a"], message["names"], message["grace"])
            case "forget":
                self._forget(message["a"], message["keep"])
            case "follow":
                if message["on"]:
                    self.logs.follow(message["a"])
                else:
                    self.logs.unfollow(message["a"])
            case "shell":
                gang = self.gangs.get(message["a"])
                replica = gang.replicas.get(message["name"]) if gang else None
                self._shells.open(message["id"], message["tty"], replica)
            case "socket":
                self.networks.open_socket(message["id"], message["a"], message["family"])

    def _report_all(self) -> None:
        self.logs.unfollow_all()
        limits = self.slots.kind if self.slots else "rlimits"
        hello = {"version": VERSION, "pid": os.getpid(), "limits": limits} | users.hello_fields()
        self._connection.send({"hello": hello})
        for gang in self.gangs.values():
            for line in gang.lines:
                self._connection.send(line)
        self._connection.send({"synced": True})

    # Start.

    def _launch(self, message: Message) -> None:
        attempt: str = message["a"]
        known = self.gangs.get(attempt)
        if known:
            for line in known.lines[1:]:
                self._connection.send(line)
            return
        plans: list[Plan] = [plan | {"shared": message["shared"]} for plan in message["replicas"]]
        gang = self.gangs[attempt] = Gang(attempt, make_claim(message, self.boot), self.attempts)
        self.journal.append(gang.lines[0])
        kill_point("supervisor.claimed")
        if attempt in self.tombstones:
            for replica in gang.replicas.values():
                self.end(replica, STOPPED, message="it was stopped before it started")
            return
        starts = [lambda plan=plan: self._start(gang.replicas[plan["name"]], plan) for plan in plans]
        self._work.extendleft(reversed(starts))

    def _restart(self, message: Message) -> None:
        """Starts a replica in place that has ended, or one that never ran. Idempotent by the number of the start."""
        name, restarts = message["replica"]["name"], message["restarts"]
        gang = self.gangs.get(message["a"])
        if gang is None or gang.replicas[name].restarts > restarts:
            return
        plan: Plan = message["replica"] | {"shared": message["shared"]}
        if gang.replicas[name].awaiting_start:
            gang.replicas[name].awaiting_start = False
            self._start(gang.replicas[name], plan)
        if not gang.replicas[name].ended or gang.replicas[name].restarts == restarts:
            return
        replica = gang.restart(name, restarts, self.boot)
        self.record(gang, restart_line(replica))
        if gang.partial:
            self.end(replica, LOST, message=f"{name} cannot be started again: not all of it is known")
            return
        kill_point("supervisor.again")
        self._start(replica, plan)

    def _start(self, replica: Replica, plan: Plan) -> None:
        try:
            before = self._spawn(replica, plan)
        except NotStarted as error:
            self.end(replica, NOT_FOUND, code=error.code, message=str(error))
            return
        except Exception as error:  # noqa: BLE001 a plan that cannot be carried out must not affect other replicas
            self.end(replica, STAGING, message=f"{replica.name} could not be started: {_reason(error)}")
            return
        replica.start_time = procfs.start_time_after(before, replica.pid) or 0
        replica.started_at = replica.gang.timestamp()
        if not replica.first_started_at:
            replica.first_started_at, replica.first_started_clock = replica.started_at, self.loop.clock()
        self._processes.watch(replica)
        run_safely(lambda: self.logs.read_pipes(replica))
        self._watch_limits(replica)
        replica.slot_number = replica.slot.number if replica.slot else -1
        kill_point("supervisor.respawned" if replica.restarts else "supervisor.spawned")
        self.record(replica.gang, replica.started_line)

    def _spawn(self, replica: Replica, plan: Plan) -> int:
        """Returns the time just before, in clock ticks. Raises NotStarted, OSError and whatever a bad plan causes."""
        user = users.require_allowed(replica.user)
        if replica.restarts:
            self.spares.complete(replica.directory, user)
        else:
            self.spares.take(replica.directory, user)
        self.loop.wake_after(QUIET)
        make_directories(replica.directory, plan.get("dirs", ()), user)
        make_links(replica.directory, plan, user)
        self.logs.open(replica)
        if replica.gang.sealed:
            self.logs.start_encrypter(replica, plan["shared"]["seal"])
        replica.slot = self.slots.acquire(plan) if self.slots else None
        before = procfs.now_in_ticks()
        network = self.networks.assign(replica.gang) if replica.gang.network else None
        with self._limits.applied(plan, replica.slot):
            replica.pid = spawn(replica, plan, self.journal, network)
        replica.plan = plan if plan.get("shell") else None
        replica.program = plan["argv"][0]
        return before

    def adopt(self, replica: Replica, pidfd: int | None) -> None:
        """Takes over a replica that an earlier supervisor started. `pidfd` is None if its process is gone."""
        self._processes.adopt(replica, pidfd)
        if pidfd is None:
            return
        self._watch_limits(replica)
        if replica.kill_deadline:
            self._processes.stop(replica, replica.cause, replica.kill_deadline)

    def _watch_limits(self, replica: Replica) -> None:
        """The time limit counts from the first start, even if the replica or the supervisor was restarted since."""
        self._disk.watch(replica)
        if replica.gang.time_limit is None:
            return
        if not replica.first_started_clock:
            # The steady clock starts at zero with each boot: only the wall clock knows how long the replica ran before.
            before = max(0, replica.started_at - replica.first_started_at) / 1e9
            replica.first_started_clock = (
                procfs.to_seconds(replica.start_time) or self.loop.clock()
            ) - before
        left = replica.first_started_clock + replica.gang.time_limit - self.loop.clock()
        replica.timers.append(self.loop.call_later(left, lambda: self._on_time_limit(replica)))

    def _on_time_limit(self, replica: Replica) -> None:
        if replica.ended or replica.exit:
            return
        self._stop_replicas(replica.gang, [replica], TIME_LIMIT, replica.gang.grace)

    # Stop and end.

    def _stop(self, attempt: str, names: list[str], grace: float) -> None:
        gang = self.gangs.get(attempt)
        if gang is None:
            if attempt not in self.tombstones:
                self.tombstones.add(attempt)
                self.journal.append({"tomb": attempt})
            return
        chosen = [gang.replicas[name] for name in names or gang.replicas if name in gang.replicas]
        self._stop_replicas(gang, [replica for replica in chosen if not replica.ended], STOPPED, grace)

    def _stop_replicas(self, gang: Gang, replicas: list[Replica], cause: str, grace: float) -> None:
        deadline = self.loop.clock() + grace
        for replica in [replica for replica in replicas if replica.awaiting_start]:
            self.end(replica, cause, message="it was stopped before it started")
        running = [r for r in replicas if not r.awaiting_start]
        # A later deadline changes nothing.
        stopped = [r for r in running if not r.kill_deadline or deadline < r.kill_deadline]
        if not stopped:
            return
        stop = [gang.attempt, [replica.name for replica in stopped], cause, time.time_ns() + int(grace * 1e9)]
        detail = {"why": stopped[0].cause_detail} if cause == DISK_LIMIT else {}
        self.record(gang, {"stop": stop, "by": deadline, "in": self.boot} | detail)
        for replica in stopped:
            self._processes.stop(replica, cause, deadline)

    def _on_process_end(self, replica: Replica, cause: str, message: str = "", at: int = 0) -> None:
        """All processes of the replica are gone. `replica.exit` says how it ended, if that is known."""
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
        for timer in replica.timers:
            timer.cancel()
        self.logs.unwatch(replica)
        self._disk.forget(replica)
        ended = [replica.gang.attempt, replica.name, at, cause, code, number, message]
        if replica.gang.sealed:
            self._finishing.add(replica)
            self._finish_sealed(replica, ended)
        else:
            self._record_end(replica, ended)

    def _finish_sealed(self, replica: Replica, ended: list[Any]) -> None:
        if not run_safely(lambda: self.logs.finish_sealed(replica, lambda: self._record_end(replica, ended))):
            self.loop.call_later(_RETRY_SECONDS, lambda: self._finish_sealed(replica, ended))

    def _record_end(self, replica: Replica, ended: list[Any]) -> None:
        """Everything that the replica printed is on disk when its end is recorded."""
        self._finishing.discard(replica)
        run_safely(lambda: self.logs.close(replica))
        if replica.status >= 0:
            os.close(replica.status)
            replica.status = -1
        if replica.slot and self.slots:
            self.slots.release(replica.slot)
            replica.slot = None
        kill_point("supervisor.ending")
        self._urgent = True
        ended[2] = replica.gang.timestamp(ended[2])
        self.record(replica.gang, {"ended": ended + replica.restart_suffix})
        if replica.gang.network:
            self.networks.release(replica.gang)

    def record(self, gang: Gang, *lines: Line) -> None:
        """Appends the lines to the journal, then sends them to the service."""
        texts = [encode(line) for line in lines]
        self.journal.append_encoded(
            [encode(gang.for_journal(line)) for line in lines] if gang.sealed else texts
        )
        gang.lines += lines
        self._connection.send_encoded(texts)

    # Forget.

    def _forget(self, attempt: str, keep_workspace: bool) -> None:
        gang = self.gangs.get(attempt)
        if gang and not gang.ended:
            return
        if gang is None and attempt not in self.tombstones:
            return
        self.journal.append_later({"forgotten": attempt})
        self.gangs.pop(attempt, None)
        self.tombstones.discard(attempt)
        self.logs.unfollow(attempt)
        if gang and not keep_workspace:
            for replica in gang.replicas.values():
                self.spares.discard(replica.directory, replica.printed)
        if self.journal.worth_compacting(lambda: sum(len(gang.lines) for gang in self.gangs.values())):
            self.compact()

    @property
    def boot_line(self) -> Line:
        return {"boot": self.boot, "place": self.place}

    def compact(self) -> None:
        lines: list[Line] = [self.boot_line]
        lines += [{"tomb": attempt} for attempt in self.tombstones]
        for gang in self.gangs.values():
            lines += gang.journal_lines()
        self.journal.rewrite(lines)


def _reason(error: Exception) -> str:
    """For people: without the number of an OSError."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
