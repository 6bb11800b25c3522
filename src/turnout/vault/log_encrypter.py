"""Encrypts the log of a replica: reads its output from pipes and writes sealed frames, never plain text.

The supervisor forks it, which passes the key in memory. It runs in a session of its own and survives a kill of the
service and the supervisor. It ends when all writers have closed the pipes, or on SIGTERM after it has read what the
pipes hold. It also writes the log's marks, as the supervisor does for other logs.
"""

import base64
import contextlib
import ctypes
import json
import os
import select
import signal
import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from turnout.vault.cipher import DataKey
from turnout.vault.frames import FrameWriter
from turnout.vault.header import Header

STREAMS = ("stdout", "stderr")

_MARK = struct.Struct("<QQQ")
_MARKS_APART = 1_000_000
_PAUSE = 0.004
"""Seconds between two frames of a program that prints without pause."""
_PIECE = 1 << 16
_MOST = 1 << 18
_FULL_PAUSE = 0.5
_FULL_DISK_SECONDS = 10.0
"""How long it retries to write to a full disk at the end."""
_TAIL = 4096
_PR_SET_DUMPABLE = 4


class Task(NamedTuple):
    """A running supervisor of an earlier version may load this module: the names `Task`, `begin`, `run` and `warm_up`,
    and the fields, must not change.
    """

    directory: str
    pipes: tuple[int, int]
    """Read ends of stdout and stderr."""
    outlets: tuple[int, int] | None
    """Read ends of further pipes for the same streams. Their writers are never all closed."""
    limit: int
    """The limit of each log in bytes."""
    word: int
    """The write end of a pipe for lines of JSON to the supervisor, which may have ended."""
    key: dict[str, str]


def warm_up() -> None:
    """Loads everything that `run` needs, because it may be unreadable later."""
    DataKey(Header("", b""), bytes(32)).for_file(b"", "nothing").encrypt(bytes(12), b"", None)


def begin() -> None:
    """Call it in the forked process: resets signal handling, starts a session, and protects the memory."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def run(task: Task) -> None:
    """Runs until all output is written. The caller has blocked SIGTERM."""
    secret = base64.b64decode(task.key["secret"])
    encrypter = _LogEncrypter(task, DataKey(Header.of(task.key["name"], task.key["wrapped"]), secret))
    signal.signal(signal.SIGTERM, lambda *_: encrypter.finish())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    encrypter.run()


class _LogEncrypter:
    def __init__(self, task: Task, key: DataKey) -> None:
        self._task = task
        self._logs = _Logs(task.directory, key, task.limit)
        self._sources = {fd: stream for stream, fd in enumerate(task.pipes)}
        self._open = set(task.pipes)
        if task.outlets:
            self._sources |= {fd: stream for stream, fd in enumerate(task.outlets)}
        for fd in self._sources:
            os.set_blocking(fd, False)
        self._poll = select.poll()
        for fd in self._sources:
            self._poll.register(fd, select.POLLIN)
        self._held = [bytearray(), bytearray()]
        self._tail = b""
        self._last = 0.0
        self._finishing = False
        self._wake_read, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll.register(self._wake_read, select.POLLIN)

    def finish(self) -> None:
        """The replica has ended, even if some process holds a pipe open. Called by a signal handler."""
        self._finishing = True
        with contextlib.suppress(OSError):
            os.write(self._wake, b"\0")

    def run(self) -> None:
        while self._open and not self._finishing:
            if self._full:
                # Nothing is read, so the program waits, as with any full pipe.
                select.select([self._wake_read], [], [], _FULL_PAUSE)
            else:
                for fd, _ in self._poll.poll(self._timeout()):
                    if fd in self._sources:
                        self._take(fd)
            if self._due:
                self._write()
        for fd in self._sources:
            while self._take(fd):
                if self._full:
                    self._write_with_retries()
        self._write_with_retries()
        self._notify({"over": self._tail.decode(errors="replace")})

    @property
    def _full(self) -> bool:
        return self._logs.behind or any(len(held) >= _MOST for held in self._held)

    @property
    def _due(self) -> bool:
        waiting = self._logs.behind or any(self._held)
        return waiting and (self._full or time.monotonic() >= self._last + _PAUSE)

    def _timeout(self) -> float | None:
        """Milliseconds."""
        if not any(self._held):
            return None
        return max(0.0, self._last + _PAUSE - time.monotonic()) * 1000 + 1

    def _take(self, fd: int) -> bool:
        """True if there was data."""
        try:
            data = os.read(fd, _PIECE)
        except BlockingIOError:
            return False
        if not data:
            with contextlib.suppress(KeyError):
                self._poll.unregister(fd)
            self._open.discard(fd)
            return False
        stream = self._sources[fd]
        self._held[stream] += data
        if stream:
            self._tail = (self._tail + data)[-_TAIL:]
        return True

    def _write(self) -> bool:
        """True if all data is on disk."""
        self._last = time.monotonic()
        try:
            for stream, held in enumerate(self._held):
                self._logs.put(stream, bytes(held))
                held.clear()
            self._logs.mark()
        except OSError:
            return False
        if self._logs.trim():
            self._notify({"trimmed": True})
        return True

    def _write_with_retries(self) -> None:
        until = time.monotonic() + _FULL_DISK_SECONDS
        while not self._write() and time.monotonic() < until:
            time.sleep(_FULL_PAUSE)

    def _notify(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            os.write(self._task.word, json.dumps(message).encode() + b"\n")


class _Logs:
    """The two logs and their marks, created at the first output."""

    def __init__(self, directory: str, key: DataKey, limit: int) -> None:
        self._make: Callable[[str], FrameWriter] = lambda name: FrameWriter(f"{directory}/{name}", key, limit)
        self._directory = directory
        self._frames: list[FrameWriter] = []
        self._marks = -1
        self._count = 0
        self._at = 0
        self._sizes = (0, 0)
        if os.path.exists(f"{directory}/marks"):
            self._resume()

    @property
    def behind(self) -> bool:
        return any(frames.waiting for frames in self._frames)

    def put(self, stream: int, data: bytes) -> None:
        """After an OSError, call it again with the same data, and more if there is some."""
        if not self._frames:
            if not data:
                return
            self._frames = [self._make(name) for name in STREAMS]
        frames = self._frames[stream]
        if before := frames.waiting:
            frames.put(b"")
        frames.put(data[before:])

    def mark(self) -> None:
        """Raises OSError."""
        sizes = tuple(frames.size for frames in self._frames) or (0, 0)
        if sizes == self._sizes:
            return
        if self._marks < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._marks = os.open(f"{self._directory}/marks", flags, 0o640)
        at = max(time.time_ns(), self._at + _MARKS_APART)
        data = _MARK.pack(at, *sizes)
        if os.pwrite(self._marks, data, self._count * _MARK.size) != len(data):
            raise OSError("a mark was cut off")
        self._at, self._sizes, self._count = at, (sizes[0], sizes[1]), self._count + 1

    def _resume(self) -> None:
        """Continues the marks of an earlier start."""
        with open(f"{self._directory}/marks", "rb") as file:
            self._count = os.fstat(file.fileno()).st_size // _MARK.size
            if self._count:
                file.seek((self._count - 1) * _MARK.size)
                self._at, *sizes = _MARK.unpack(file.read(_MARK.size))
                self._sizes = (sizes[0], sizes[1])

    def trim(self) -> bool:
        return sum(frames.trim() for frames in self._frames) > 0
