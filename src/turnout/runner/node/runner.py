"""The runner of one replica: claim, arrive, stage, start, watch, report the end, obey orders, leave.

The main thread starts and reaps processes and decides. Everything that waits for the service happens in other threads,
which post events to the main thread's mailbox.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, ClassVar, Dict, Optional

from . import kernel, memory, tree
from .connection import Document, Gateway
from .diagnostics import say
from .errors import Cancelled, Fenced, Gone, NotStarted, Refused, RunnerError, StagingError, Unreachable
from .home import Home
from .mailbox import Mailbox
from .memory import MemoryLimit
from .output import Output
from .preparation import GivenUp, Preparation, Ready
from .process import Exit, Launcher, Program
from .relay import Relay
from .reporter import MetricsFile, Reporter
from .sandbox import find_source
from .settings import Settings
from .usage import Usage

if TYPE_CHECKING:
    from .save import PeriodicSaves
    from .shells import Shells

GAVE_UP = 75
"""EX_TEMPFAIL"""
_LONGEST_GRACE = 25.0
"""After a signal to the runner itself: the cluster kills it soon."""
_DELIVERY_SECONDS = 30.0
_CLEANUP_SECONDS, _CLEANUP_PAUSE = 10.0, 0.005
_SHORTEST_POLL = 0.2
_SIGNAL_SECONDS = 0.2
_NEVER = float("inf")
_OUT_OF_MEMORY = "out of memory"
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Runner:
    def __init__(self, settings: Settings, gateway: Gateway, home: Home) -> None:
        """Raises OSError."""
        self._settings = settings
        self._gateway = gateway
        self._home = home
        self._mailbox = Mailbox()
        self._preparation = Preparation(settings, gateway, home)
        self._output = Output(home)
        self._relay = Relay(self._output)
        self._reporter: Optional[Reporter] = None
        self._shells: Optional[Shells] = None
        self._ready: Optional[Ready] = None
        self._launcher: Optional[Launcher] = None
        self._periodic: Optional[PeriodicSaves] = None
        self._saves_wanted = 0
        self._program: Optional[Program] = None
        self._restarts = 0
        self._over = False
        """The current start has ended, or will never be made."""
        self._undelivered = False
        """The service has not acknowledged the end yet."""
        self._exit: Optional[Exit] = None
        self._cause = ""
        self._killed = False
        self._memory_kills: Optional[int] = None
        self._memory = MemoryLimit(0)
        self._limit_at = self._kill_at = _NEVER
        self._signal = 0
        self._signalled = False
        self._abandoned: Optional[int] = None
        """Report nothing more, and exit with this code when the program has ended; -1: with the program's."""
        self._code: Optional[int] = None
        self._keep_home = False

    def run(self) -> int:
        """Returns the exit code. Call it once, in the main thread."""
        self._handle_signals()
        kernel.adopt_orphans()
        self._in_thread("claim", lambda: self._mailbox.post("claimed", self._preparation.claim()))
        try:
            while self._code is None:
                event = self._mailbox.get(self._seconds_left())
                if event:
                    getattr(self, f"_on_{event.kind}")(event.payload)
                self._reap()
                self._check_time()
        finally:
            self._kill_rest()
        if not self._keep_home:
            self._home.remove()
        return self._code

    # Before the program.

    def _on_claimed(self, claim: Document) -> None:
        self._restarts = int(claim.get("restarts") or 0)
        self._output.limit = int(claim.get("log_bytes") or 0)
        seconds = float(claim.get("sample_seconds") or 0)
        self._reporter = Reporter(self._gateway, self._output, seconds, self._fail)
        self._reporter.start()
        self._relay.start()
        self._in_thread("orders", self._receive_orders)
        ports = int(claim.get("ports") or 0)
        self._in_thread("prepare", lambda: self._mailbox.post("ready", self._preparation.run(ports)))

    def _on_unprepared(self, message: str) -> None:
        if not self._over:
            self._report_end("staging", None, message)

    def _on_given_up(self, reason: str) -> None:
        say(f"the service gives up: {reason}")
        self._code = 0 if self._code is None else self._code

    def _on_ready(self, ready: Ready) -> None:
        self._ready = ready
        if self._over or self._abandoned is not None:
            return None
        try:
            self._launcher = Launcher(ready.plan, self._home, ready.bwrap, self._settings.environment)
        except OSError as error:
            return self._report_end("staging", None, f"the replica cannot be prepared: {error.strerror}")
        return self._start()

    # The program.

    def _start(self) -> None:
        assert self._ready
        assert self._launcher
        assert self._reporter
        plan = self._ready.plan
        self._cause, self._killed, self._over, self._exit = "", False, False, None
        self._kill_at = _NEVER
        self._memory_kills = memory.kills()
        self._memory = MemoryLimit(plan.memory if self._settings.enforce_memory else 0)
        self._ready.ports.release()
        try:
            self._program = Program(self._launcher, plan.argv, self._relay.writers, self._output.paths[1])
        except NotStarted as error:
            self._exit = Exit(error.code, None) if error.code is not None else None
            return self._report_end(error.cause, self._exit, str(error))
        if self._limit_at == _NEVER and plan.limit is not None:
            self._limit_at = time.monotonic() + plan.limit
        started = {"restarts": self._restarts, "pid": self._program.pid, "at": time.time_ns()}
        self._reporter.report("started", started, lambda: None)
        metrics = plan.metrics_file
        path = os.path.join(self._home.path, find_source(metrics, self._launcher.binds))
        self._reporter.watch(Usage(plan, self._launcher.env), MetricsFile(metrics, path) if metrics else None)
        saves = self._ready.saves
        if saves and saves.period and self._periodic is None:
            from .save import PeriodicSaves  # see `Preparation`

            self._periodic = PeriodicSaves(saves)
            self._periodic.start()
        return None

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if self._shells:
                self._shells.reaped(pid, status)
            if self._program and pid == self._program.child:
                self._on_program_end(self._program, status)

    def _on_program_end(self, program: Program, status: int) -> None:
        self._program = None
        self._kill_at = _NEVER
        self._kill_rest()
        self._relay.drain()
        message = ""
        try:
            self._exit = program.ended(status)
            cause = self._cause or ("terminated" if self._is_terminated(self._exit) else "exit")
        except NotStarted as error:
            # If it was stopped before bubblewrap had made the sandbox, nothing is wrong with the sandbox.
            known = error.code is not None and not self._cause
            self._exit = Exit(error.code, None) if known else None
            cause, message = (self._cause, "") if self._cause else (error.cause, str(error))
        killed = self._exit is not None and self._exit.killed and not self._killed
        if killed and memory.rose(self._memory_kills, memory.kills()):
            cause, message = _OUT_OF_MEMORY, "the kernel killed it because the memory of its job ran out"
        elif cause == _OUT_OF_MEMORY:
            message = self._memory.message
        self._report_end(cause, self._exit, message)

    def _is_terminated(self, exit: Exit) -> bool:
        """Whether the cluster ended the program: it may signal the program and the runner, and the program first."""
        if exit.shell_code - 128 in _SIGNALS and not self._signalled:
            time.sleep(_SIGNAL_SECONDS)
        return self._signalled

    def _report_end(self, cause: str, exit: Optional[Exit], message: str) -> None:
        self._over = True
        if self._abandoned is not None or self._reporter is None:
            return self._finish()
        ended = {
            "restarts": self._restarts,
            "at": time.time_ns(),
            "cause": cause,
            "code": exit.code if exit else None,
            "signal": exit.signal if exit else None,
            "message": message,
        }
        with contextlib.suppress(OSError):  # the disk may be full; the service gets it anyway
            self._home.keep("ended.json", {**ended, "sizes": self._output.sizes()})
        if self._signal:
            self._gateway.hurry(_DELIVERY_SECONDS)
        self._undelivered = True
        restarts = self._restarts
        self._reporter.report("ended", ended, lambda: self._mailbox.post("acknowledged", restarts))
        return None

    def _on_acknowledged(self, restarts: int) -> None:
        if restarts != self._restarts:
            return  # the program was started again meanwhile
        self._undelivered = False
        self._home.drop("ended.json")
        if self._signal:
            self._finish()

    # Stopping.

    def _stop(self, cause: str, grace: float) -> None:
        """TERM now, KILL after the grace time; or no start at all."""
        if self._over:
            return None
        self._cause = self._cause or cause
        if self._program is None:
            self._preparation.cancel()
            return self._report_end(cause, None, "")
        if self._kill_at == _NEVER:
            tree.terminate(self._program.spared)
        self._kill_at = min(self._kill_at, time.monotonic() + grace)
        return None

    @property
    def _counts_limit(self) -> bool:
        return self._program is not None and not self._cause

    def _check_time(self) -> None:
        now = time.monotonic()
        if self._ready and self._counts_limit and now >= self._limit_at:
            self._stop("time limit", self._ready.plan.grace)
        if self._counts_limit and self._memory.exceeded():
            self._stop(_OUT_OF_MEMORY, 0)
            now = time.monotonic()
        if now >= self._kill_at and self._program:
            self._kill_at = _NEVER
            self._killed = True
            tree.kill()

    def _seconds_left(self) -> Optional[float]:
        limits = min(self._limit_at, self._memory.due) if self._counts_limit else _NEVER
        due = min(self._kill_at, limits)
        return None if due == _NEVER else max(due - time.monotonic(), 0)

    def _kill_rest(self) -> None:
        """Kills everything that the program left behind."""
        until = time.monotonic() + _CLEANUP_SECONDS
        while tree.kill():
            if time.monotonic() > until:
                say("some processes of the program cannot be killed")
                return
            time.sleep(_CLEANUP_PAUSE)
            self._reap()
        self._reap()

    # Orders.

    def _receive_orders(self) -> None:
        seen = 0
        while True:
            begun = time.monotonic()
            answer = self._gateway.call("wait", {"seen": seen}, poll=True)
            orders = answer.get("orders") or []
            for order in orders:
                self._mailbox.post("order", order)
            seen = int(answer.get("order") or 0)
            if not orders:
                time.sleep(max(_SHORTEST_POLL - (time.monotonic() - begun), 0))

    def _on_order(self, order: Document) -> None:
        obey = self._orders.get(str(order.get("kind")))
        if obey and self._abandoned is None:
            obey(self, order)

    def _obey_stop(self, order: Document) -> None:
        self._stop("stopped", float(order.get("grace") or 0))

    def _obey_restart(self, order: Document) -> None:
        if self._over and self._launcher and order.get("restarts") == self._restarts + 1 and not self._signal:
            self._restarts += 1
            self._start()

    def _obey_save(self, _: Document) -> None:
        self._saves_wanted += 1
        if self._saves_wanted == 1:
            self._in_thread("save", self._save)

    def _on_saved(self, _: object) -> None:
        # An order that came meanwhile may be about files that this save did not see.
        again, self._saves_wanted = self._saves_wanted > 1, 0
        if again:
            self._obey_save({})

    def _obey_shell(self, order: Document) -> None:
        from .shells import Shells  # few replicas have one

        self._shells = self._shells or Shells(self._gateway)
        launcher = self._launcher if self._program else None
        allowed = self._ready is not None and self._ready.plan.shell
        self._shells.open(order, launcher, allowed)

    def _obey_leave(self, order: Document) -> None:
        self._keep_home = bool(order.get("keep"))
        self._finish()

    _orders: ClassVar[Dict[str, Callable[[Runner, Document], None]]] = {
        "stop": _obey_stop,
        "restart": _obey_restart,
        "save": _obey_save,
        "shell": _obey_shell,
        "leave": _obey_leave,
    }

    def _save(self) -> None:
        files, size, trouble = 0, 0, ""
        if self._periodic:
            self._periodic.stop()
        if self._ready and self._ready.saves:
            files, size, trouble = self._ready.saves.run(final=True)
        self._gateway.call("saved", {"files": files, "bytes": size, "trouble": trouble})
        self._mailbox.post("saved")

    # Why the runner ends.

    def _handle_signals(self) -> None:
        parent = os.getppid()

        def on_signal(number: int, _: object) -> None:
            self._signalled = True
            self._mailbox.post("signal", number)

        def on_orphaned(_: int, __: object) -> None:
            # The signal also comes when only the thread that started the runner has ended.
            if os.getppid() != parent:
                on_signal(signal.SIGTERM, None)

        self._mailbox.wake_on_signals()
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in _SIGNALS:
            signal.signal(number, on_signal)
        signal.signal(signal.SIGUSR1, on_orphaned)
        kernel.die_with_parent(signal.SIGUSR1)

    def _on_signal(self, number: int) -> None:
        """The cluster ends the runner."""
        if self._signal:
            return
        self._signal = number
        grace = min(self._ready.plan.grace if self._ready else 0.0, _LONGEST_GRACE)
        self._gateway.hurry(grace + _DELIVERY_SECONDS)
        if self._reporter is None or (self._over and not self._undelivered):
            self._finish()  # nothing was claimed yet, or everything is reported
        else:
            self._stop("terminated", grace)

    def _fail(self, error: RunnerError) -> None:
        self._mailbox.post("lost", error)

    def _on_lost(self, error: RunnerError) -> None:
        """No more contact with the service."""
        if self._abandoned is not None or self._code is not None:
            return
        say(str(error))
        grace = self._ready.plan.grace if self._ready else 0.0
        if isinstance(error, Fenced):
            self._abandoned, grace = 0, 0.0
        elif isinstance(error, Gone) or (self._signal and isinstance(error, Unreachable)):
            self._abandoned = -1
        else:
            self._abandoned = GAVE_UP
        self._keep_home = not isinstance(error, (Fenced, Gone)) and self._ready is not None
        if self._program is None:
            self._preparation.cancel()
            self._finish()
        else:
            self._stop("abandoned", grace)

    def _finish(self) -> None:
        if self._code is None:
            code = self._exit.shell_code if self._exit else 128 + self._signal if self._signal else 0
            self._code = code if self._abandoned in (None, -1) else self._abandoned

    def _in_thread(self, name: str, work: Callable[[], Any]) -> None:
        """Failures of the work become events."""

        def run() -> None:
            try:
                work()
            except RunnerError as error:
                self._fail(error)
            except GivenUp as error:
                self._mailbox.post("given_up", str(error))
            except StagingError as error:
                self._mailbox.post("unprepared", str(error))
            except Cancelled:
                pass
            except OSError as error:
                self._mailbox.post("unprepared", f"the replica cannot be prepared: {error.strerror or error}")
            except Exception as error:  # noqa: BLE001 whatever it is, the replica must not hang
                self._fail(Refused(f"an answer of the service is not understood: {error!r}"))

        threading.Thread(target=run, name=name, daemon=True).start()
