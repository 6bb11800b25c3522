"""Shells beside the program: with its environment, its directory and its view of the file system."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import threading
from typing import Any, Dict, Optional

from . import tree
from .connection import Gateway
from .diagnostics import say
from .errors import NotStarted, RunnerError
from .process import Launcher

_OUTPUT = 64 << 10
_CLOSE_SECONDS = 2.0
_NOT_ALLOWED, _NOT_RUN = 126, 127


class Shell:
    """One shell. `ended` has to be called when its process was reaped."""

    def __init__(self, gateway: Gateway, id: str, columns: int, rows: int) -> None:
        self._gateway = gateway
        self._path = f"shell/{id}"
        self._sent = 0
        self._master, self._slave = pty.openpty()
        self._exited = threading.Event()
        self._code = 0
        self._sandboxed = False
        self._process: Any = None
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._resize(columns, rows)

    def open(self, launcher: Launcher) -> int:
        """Returns the id of its process. Call it from the main thread. Raises NotStarted."""
        slave = self._slave
        self._sandboxed = launcher.sandboxed

        def take_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        argv = [launcher.env.get("SHELL") or "/bin/sh"]
        try:
            self._process = launcher.start(
                argv, slave, slave, slave, {"TERM": "xterm-256color"}, take_terminal
            )
        finally:
            os.close(slave)
        threading.Thread(target=self._send_output, name="shell output", daemon=True).start()
        threading.Thread(target=self._receive_input, name="shell input", daemon=True).start()
        return self._process.pid

    def refuse(self, code: int, message: str) -> None:
        """Tells the user why there is no shell."""

        def send() -> None:
            with contextlib.suppress(RunnerError):
                self._send(message.encode() + b"\r\n")
                self._send_end(code)

        self._exited.set()
        for fd in (self._master, self._slave, self._wake_read, self._wake_write):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._master = -1
        threading.Thread(target=send, name="shell output", daemon=True).start()

    def ended(self, status: int) -> None:
        self._process.returncode = status
        self._code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self._exited.set()
        os.close(self._wake_write)

    def _send_output(self) -> None:
        try:
            while True:
                ready = select.select([self._master, self._wake_read], [], [])[0]
                if self._master not in ready:
                    break  # it has ended, and everything was read
                try:
                    data = os.read(self._master, _OUTPUT)
                except OSError:  # no process has the terminal open any more
                    break
                self._send(data)
            self._exited.wait()
            self._send_end(self._code)
        except RunnerError as error:
            say(f"a shell has lost the service: {error}")
            self._hang_up()
        finally:
            with self._lock:
                os.close(self._master)
                self._master = -1
            os.close(self._wake_read)

    def _receive_input(self) -> None:
        after = 0
        try:
            while not self._exited.is_set():
                answer = self._gateway.call(f"{self._path}/input", {"after": after}, poll=True)
                after = answer.get("after", after)
                for event in answer.get("events") or []:
                    self._handle(event)
        except RunnerError:
            self._hang_up()

    def _handle(self, event: Dict[str, Any]) -> None:
        if event.get("close"):
            self._hang_up()
        elif "data" in event:
            self._write(base64.b64decode(event["data"]))
        elif "columns" in event:
            self._resize(event["columns"], event["rows"])

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            while data and not self._exited.is_set():
                # Not under the lock: a program that reads nothing blocks it.
                if select.select([], [self._master], [], 1.0)[1]:
                    data = data[os.write(self._master, data[:1024]) :]

    def _resize(self, columns: int, rows: int) -> None:
        size = struct.pack("HHHH", int(rows), int(columns), 0, 0)
        with self._lock, contextlib.suppress(OSError):
            if self._master >= 0:
                fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def _hang_up(self) -> None:
        if not self._exited.is_set():
            self._signal(signal.SIGHUP)
        if not self._exited.wait(_CLOSE_SECONDS):
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        # In a sandbox this process is bubblewrap, which would die of a HUP that a shell ignores.
        shell = self._process.pid
        for pid in [*tree.descendants(shell), *([] if self._sandboxed else [shell])]:
            tree.send(pid, number)

    def _send(self, data: bytes) -> None:
        # The offset lets the service recognize what it got before a connection broke.
        headers = {"Content-Type": "application/octet-stream", "X-Turnout-Offset": str(self._sent)}
        self._gateway.send(f"{self._path}/output", data, headers)
        self._sent += len(data)

    def _send_end(self, code: int) -> None:
        headers = {"X-Turnout-Offset": str(self._sent), "X-Exit-Code": str(code)}
        self._gateway.send(f"{self._path}/output", b"", headers)


class Shells:
    """All shells of this replica. Its methods belong to the main thread."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._known: Dict[str, Shell] = {}
        self._processes: Dict[int, Shell] = {}

    def open(self, order: Dict[str, Any], launcher: Optional[Launcher], allowed: bool) -> None:
        """Does nothing if it is open already. `launcher` is None if the program does not run."""
        id = str(order["id"])
        if id in self._known:
            return
        shell = self._known[id] = Shell(
            self._gateway, id, order.get("columns") or 80, order.get("rows") or 24
        )
        if launcher is None:
            shell.refuse(_NOT_ALLOWED, "the program is not running")
        elif not allowed:
            shell.refuse(_NOT_ALLOWED, "this job does not allow shells")
        else:
            try:
                self._processes[shell.open(launcher)] = shell
            except NotStarted as error:
                shell.refuse(_NOT_RUN, str(error))

    def reaped(self, pid: int, status: int) -> None:
        """Call it for each process that was reaped."""
        shell = self._processes.pop(pid, None)
        if shell:
            shell.ended(status)
