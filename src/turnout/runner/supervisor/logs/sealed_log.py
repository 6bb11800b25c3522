"""Logs and workspaces of encrypted jobs. Nothing readable of such a replica stays on disk: an encrypter process writes
its log, and its workspace is removed before its end is reported.

The encrypter is `turnout.vault.log_encrypter`, which needs more than the standard library. It is loaded only where
there is a key ring, and before the supervisor gives up the right to read it. Each log has an encrypter process, forked
here, so that the key is passed in memory.
"""

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from .. import procfs
from ..diagnostics import log_message
from ..disk.remove import remove
from ..loop import Loop
from ..replicas import users
from ..replicas.roots import ROOT
from ..replicas.spares import BOX, SCRATCH, WORKSPACE
from .marks import StreamPipes

_STDERR_SECONDS = 5.0
"""How long the supervisor waits for an encrypter to report the end of stderr. Everything else waits meanwhile."""
_MAX_MESSAGES = 1 << 16


class LogEncrypters:
    """Loads the encrypter module and forks encrypter processes. `now`: there is a key ring, so load it at once."""

    def __init__(self, module: str, paths: list[str], now: bool) -> None:
        self._module = module
        self._paths = paths
        self._encrypter: Any = None
        self._pid = os.getpid()
        if now:
            try:
                self._load()
            except ImportError as error:
                log_message(f"logs cannot be sealed: {error}")

    def fork(self, task: dict[str, Any], keep: set[int]) -> int:
        """Returns the id of the new process, which keeps only the files in `keep`. Raises OSError if the module is
        missing.
        """
        try:
            encrypter = self._load()
        except ImportError as error:
            raise OSError(
                f"its log cannot be sealed: {error}; if the key ring was added just now, let running jobs end first"
            ) from None
        # SIGTERM has to wait until the encrypter handles it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            pid = os.fork()
        finally:
            if os.getpid() == self._pid:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        if pid:
            return pid
        try:
            _close_all_but(keep)
            users.keep_capabilities(0)
            encrypter.begin()
            encrypter.run(encrypter.Task(**task))
        except BaseException:  # noqa: BLE001 the process ends here, so nothing else logs it
            traceback.print_exc()
        finally:
            os._exit(0)

    def _load(self) -> Any:
        if self._encrypter is None:
            sys.path += [path for path in self._paths if path not in sys.path]
            self._encrypter = importlib.import_module(self._module)
            self._encrypter.warm_up()
        return self._encrypter


class SealedLog:
    """Like `marks.PlainLog`, but the encrypter process writes the log and its marks."""

    def __init__(self, directory: str, limit: int) -> None:
        self.limit = limit
        self.behind = False
        self.printed = True
        """What was printed is encrypted, so it counts as printed."""
        self.streams = (-1, -1)
        """The writing ends for the program, until `close_streams`."""
        self.pid = 0
        self.start_time = 0
        self._directory = directory
        self._pidfd = -1
        self._messages = -1
        self._stderr_end = ""
        self._size = 0
        self._trimmed = False

    def start_encrypter(
        self, encrypters: LogEncrypters, key: dict[str, str], sandboxed: bool, user: int
    ) -> None:
        """Raises OSError."""
        pipes = StreamPipes.open(f"{self._directory}/{BOX}/out", user) if sandboxed else None
        with users.acting_as(user):
            # The program must own them, because it may open its standard streams by name.
            out, err = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
        messages, message_end = os.pipe2(os.O_CLOEXEC)
        encrypter_files = (out[0], err[0], message_end, *(pipes or ()))
        self.streams, self._messages = (out[1], err[1]), messages
        os.set_blocking(messages, False)
        task = {
            "directory": self._directory,
            "pipes": (out[0], err[0]),
            "outlets": pipes,
            "limit": self.limit,
            "word": message_end,
            "key": key,
        }
        try:
            self.pid = encrypters.fork(task, {0, 1, 2, *encrypter_files})
        finally:
            for fd in encrypter_files:
                os.close(fd)
        self.start_time = procfs.start_time(self.pid) or 0
        self._pidfd = os.pidfd_open(self.pid)

    def adopt(self, pid: int, start: int) -> None:
        """Takes over the encrypter that an earlier supervisor started."""
        self._pidfd = (procfs.open_pidfd(pid, start) or -1) if pid else -1

    def close_streams(self) -> None:
        """Called once the program has its copies. When all processes of the replica are gone, the pipes have no writer
        left.
        """
        for fd in self.streams:
            if fd >= 0:
                os.close(fd)
        self.streams = (-1, -1)

    def mark(self) -> bool:
        """Returns whether the log has grown since the last call."""
        size = 0
        with contextlib.suppress(OSError):
            size = os.stat(f"{self._directory}/marks").st_size
        grown, self._size = size != self._size, size
        return grown

    def trim(self) -> bool:
        self._read_messages()
        trimmed, self._trimmed = self._trimmed, False
        return trimmed

    def finish(self, loop: Loop, then: Callable[[], None]) -> None:
        """Calls `then` when all that was printed is on disk."""
        self.close_streams()
        if self._pidfd < 0:
            then()
            return
        self._send_term()

        def ended() -> None:
            loop.remove(self._pidfd)
            then()

        loop.add(self._pidfd, ended)

    def end_of_stderr(self) -> str:
        """The end of stderr, for a program that never ran. Waits for the encrypter."""
        self.close_streams()
        self._send_term()
        if self._pidfd >= 0:
            select.select([self._pidfd], [], [], _STDERR_SECONDS)
        self._read_messages()
        return self._stderr_end

    def close(self) -> None:
        self.close_streams()
        for fd in (self._pidfd, self._messages):
            if fd >= 0:
                os.close(fd)
        self._pidfd = self._messages = -1

    def _send_term(self) -> None:
        """All known writers are gone, but an unknown process may hold a pipe open. So the encrypter gets SIGTERM."""
        if self._pidfd >= 0:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)

    def _read_messages(self) -> None:
        if self._messages < 0:
            return
        with contextlib.suppress(OSError, ValueError):
            for line in os.read(self._messages, _MAX_MESSAGES).splitlines():
                message = json.loads(line)
                self._trimmed = self._trimmed or "trimmed" in message
                self._stderr_end = message.get("over", self._stderr_end)


def remove_workspace(directory: str, user: int, loop: Loop, then: Callable[[], None]) -> int:
    """Removes all that the replica could write, then calls `then`. Returns the id of the process that removes."""
    paths = [f"{directory}/{name}" for name in (*WORKSPACE, SCRATCH, ROOT)]
    pid = os.fork()
    if pid == 0:
        _remove(paths, user)
    pidfd = os.pidfd_open(pid)

    def ended() -> None:
        loop.remove(pidfd)
        os.close(pidfd)
        then()

    loop.add(pidfd, ended)
    return pid


def _remove(paths: list[str], user: int) -> None:
    """In a child process, because a tree may be large. It never returns."""
    try:
        _close_all_but({0, 1, 2})
        users.become(user)
        for path in paths:
            with contextlib.suppress(OSError):
                remove(path)
    except BaseException:  # noqa: BLE001 the process ends here, so nothing else logs it
        traceback.print_exc()
    finally:
        os._exit(0)


def _close_all_but(kept: set[int]) -> None:
    """Otherwise the supervisor's lock would live as long as this process."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))
