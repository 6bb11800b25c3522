"""Replicas of which nothing readable may stay on disk: their logs go through a pump that seals them, and their
workspace is gone before their end is told.

The pump is `turnout.vault.pump`, which takes more than the standard library. So it is only loaded where there is a key
ring, before the rights to read it are given up, and it runs in a process of its own, forked off here: the key goes
from memory to memory.
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

from . import processes
from .logs import Outlets
from .loop import Loop
from .say import say
from .spares import BOX, SCRATCH, WORKSPACE

_PATIENCE = 5.0
"""Seconds that a pump is given for its last words, while everybody waits."""
_MOST_WORDS = 1 << 16


class Pumps:
    """Where the pump comes from. `now`: there is a key ring, so it will be wanted."""

    def __init__(self, module: str, paths: list[str], now: bool) -> None:
        self._module = module
        self._paths = paths
        self._pump: Any = None
        self._us = os.getpid()
        if now:
            try:
                self._load()
            except ImportError as error:
                say(f"logs cannot be sealed: {error}")

    def fork(self, task: dict[str, Any], keep: set[int]) -> int:
        """The new process's id; of our files it has only these. Raises OSError if there is no pump to be had."""
        try:
            pump = self._load()
        except ImportError as error:
            raise OSError(
                f"its log cannot be sealed: {error}; if the key ring was added just now, let running jobs end first"
            ) from None
        # It must not be told to end before it knows how to.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            pid = os.fork()
        finally:
            if os.getpid() == self._us:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        if pid:
            return pid
        try:
            _close_all_but(keep)
            pump.begin()
            pump.run(pump.Task(**task))
        except BaseException:  # noqa: BLE001 (nobody else is left to tell it)
            traceback.print_exc()
        finally:
            os._exit(0)

    def _load(self) -> Any:
        if self._pump is None:
            sys.path += [path for path in self._paths if path not in sys.path]
            self._pump = importlib.import_module(self._module)
            self._pump.warm_up()
        return self._pump


class SealedLog:
    """As `logs.Log`, but it is the pump that writes and marks."""

    def __init__(self, directory: str, limit: int) -> None:
        self.limit = limit
        self.behind = False
        self.streams = (-1, -1)
        """What the program is given, until `given`."""
        self.pid = 0
        self.start = 0
        self._directory = directory
        self._pidfd = -1
        self._word = -1
        self._words = ""
        self._size = 0
        self._trimmed = False

    def pump(self, pumps: Pumps, key: dict[str, str], sandboxed: bool) -> None:
        """Raises OSError."""
        outlets = Outlets.open(f"{self._directory}/{BOX}/out") if sandboxed else None
        out, err = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
        word, tell = os.pipe2(os.O_CLOEXEC)
        theirs = (out[0], err[0], tell, *(outlets or ()))
        self.streams, self._word = (out[1], err[1]), word
        os.set_blocking(word, False)
        task = {
            "directory": self._directory,
            "pipes": (out[0], err[0]),
            "outlets": outlets,
            "limit": self.limit,
            "word": tell,
            "key": key,
        }
        try:
            self.pid = pumps.fork(task, {0, 1, 2, *theirs})
        finally:
            for fd in theirs:
                os.close(fd)
        self.start = processes.start_time(self.pid) or 0
        self._pidfd = os.pidfd_open(self.pid)

    def adopt(self, pid: int, start: int) -> None:
        """The pump that an earlier keeper had started."""
        self._pidfd = (processes.open_pidfd(pid, start) or -1) if pid else -1

    def given(self) -> None:
        """The program has them: when it and its like are gone, nobody has."""
        for fd in self.streams:
            if fd >= 0:
                os.close(fd)
        self.streams = (-1, -1)

    def mark(self) -> bool:
        """Whether it had grown since the last time."""
        size = 0
        with contextlib.suppress(OSError):
            size = os.stat(f"{self._directory}/marks").st_size
        grown, self._size = size != self._size, size
        return grown

    def trim(self) -> bool:
        self._listen()
        trimmed, self._trimmed = self._trimmed, False
        return trimmed

    def finish(self, loop: Loop, then: Callable[[], None]) -> None:
        """Calls back when all that was printed is on disk."""
        self.given()
        if self._pidfd < 0:
            then()
            return
        self._tell_to_end()

        def ended() -> None:
            loop.off(self._pidfd)
            then()

        loop.on(self._pidfd, ended)

    def last_words(self) -> str:
        """The end of what was printed to stderr. Waits for the pump: only for a program that never ran."""
        self.given()
        self._tell_to_end()
        if self._pidfd >= 0:
            select.select([self._pidfd], [], [], _PATIENCE)
        self._listen()
        return self._words

    def close(self) -> None:
        self.given()
        for fd in (self._pidfd, self._word):
            if fd >= 0:
                os.close(fd)
        self._pidfd = self._word = -1

    def _tell_to_end(self) -> None:
        """All writers are gone by now, but one that we do not know of may still hold a pipe open."""
        if self._pidfd >= 0:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)

    def _listen(self) -> None:
        if self._word < 0:
            return
        with contextlib.suppress(OSError, ValueError):
            for line in os.read(self._word, _MOST_WORDS).splitlines():
                said = json.loads(line)
                self._trimmed = self._trimmed or "trimmed" in said
                self._words = said.get("over", self._words)


def wind_up(
    directory: str, log: object, loop: Loop, own: Callable[[int], None], then: Callable[[], None]
) -> None:
    """After the end: calls back when all that was printed is sealed, and all that could be written into is gone.

    `own` hears of the process that it takes.
    """
    if isinstance(log, SealedLog):
        log.finish(loop, lambda: own(_wipe(directory, loop, then)))
    else:
        own(_wipe(directory, loop, then))


def _wipe(directory: str, loop: Loop, then: Callable[[], None]) -> int:
    paths = [f"{directory}/{name}" for name in (*WORKSPACE, SCRATCH)]
    argv = ["sh", "-c", REMOVE, "sh", *paths]
    pid = os.posix_spawn("/bin/sh", argv, {"PATH": "/usr/bin:/bin"})
    pidfd = os.pidfd_open(pid)

    def ended() -> None:
        loop.off(pidfd)
        os.close(pidfd)
        then()

    loop.on(pidfd, ended)
    return pid


REMOVE = 'rm -rf -- "$@" 2>/dev/null || { chmod -R u+rwX -- "$@"; rm -rf -- "$@"; }'


def _close_all_but(kept: set[int]) -> None:
    """At once: our lock must not outlive us because a pump has it too."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))
