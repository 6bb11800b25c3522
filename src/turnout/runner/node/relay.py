"""A thread that appends what the program prints to files.

The program gets pipes, not the files: a shell that redirects to /dev/stderr opens it anew and truncates it, and would
erase what was printed before.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import threading
import time
from typing import List, Tuple

from .diagnostics import say
from .output import Output

_READ = 1 << 18
_ROUND = 4 << 20
"""Bytes between two marks at most."""
_PAUSE = 0.001
"""Between two marks."""
_FULL_SECONDS = 1.0
_SET_PIPE_SIZE, _PIPE_SIZE = 1031, 1 << 20


class Relay(threading.Thread):
    def __init__(self, output: Output) -> None:
        """Raises OSError."""
        super().__init__(name="relay", daemon=True)
        self._output = output
        self._pipes = [_pipe(), _pipe()]
        self._unwritten = [b"", b""]
        """What did not fit on the disk."""
        self._lock = threading.Lock()
        self._full = False

    @property
    def writers(self) -> Tuple[int, int]:
        """What the program gets as its stdout and stderr."""
        return self._pipes[0][1], self._pipes[1][1]

    def run(self) -> None:
        while True:
            held = any(self._unwritten)
            waiting = [read for (read, _), data in zip(self._pipes, self._unwritten) if not data]
            select.select(waiting, [], [], _FULL_SECONDS if held else None)
            self._copy()
            time.sleep(_FULL_SECONDS if any(self._unwritten) else _PAUSE)

    def drain(self) -> None:
        """Appends everything that was printed. Call it when the program and its children have ended."""
        while self._copy():
            pass
        if any(self._unwritten):
            say("the end of the output is lost, because the disk is full")

    def _copy(self) -> bool:
        """Appends what the pipes hold, and marks it. Returns whether there was something."""
        with self._lock:
            copied = [self._copy_stream(number) for number in range(len(self._pipes))]
        if any(copied):
            self._output.mark()
        return any(copied)

    def _copy_stream(self, number: int) -> int:
        copied = 0
        with contextlib.suppress(BlockingIOError):
            while copied < _ROUND:
                data = self._unwritten[number] or os.read(self._pipes[number][0], _READ)
                wrote = self._append(number, data)
                self._unwritten[number] = data[wrote:]
                copied += wrote
                if wrote < len(data):
                    break
        return copied

    def _append(self, number: int, data: bytes) -> int:
        try:
            wrote = self._output.append(number, data)
        except OSError as error:
            if not self._full:
                self._full = True
                say(f"the output cannot be written: {error.strerror}; the program waits")
            return 0
        self._full = False
        return wrote


def _pipe() -> List[int]:
    read, write = os.pipe2(os.O_CLOEXEC)
    # Only this end: the program shares the flags of the other.
    os.set_blocking(read, False)
    with contextlib.suppress(OSError):
        fcntl.fcntl(write, _SET_PIPE_SIZE, _PIPE_SIZE)
    return [read, write]
