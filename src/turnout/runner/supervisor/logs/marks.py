"""Marks: when a replica's two streams had how many bytes.

The programs write into files themselves; no byte passes through here. A one-shot inotify watch on the replica's
directory tells that something was written; it is armed again a little later, so that a program that prints without
pause costs one look in a while and not one for each write.
"""

import contextlib
import ctypes
import errno
import os
import struct
import time
from collections.abc import Callable

from .say import Outage
from .spares import PIPES, make_pipes

MARK = struct.Struct("<QQQ")
"""Time in ns, size of stdout, size of stderr."""

APART = 1_000_000
"""Marks are at least so many ns apart: the lines that share one are told apart by the nanoseconds between."""

_HEAD = 1 << 20
_IN_MODIFY, _IN_ONESHOT, _IN_ONLYDIR = 0x2, 0x80000000, 0x01000000
_IN_CLOEXEC, _IN_NONBLOCK = 0o2000000, 0o4000
_KEEP_SIZE, _PUNCH_HOLE = 1, 2

FULL = Outage("logs cannot be written")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
_libc.inotify_add_watch.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32]


class Watcher:
    """Calls back, once for each arming, when something in a directory was written. `fd` goes into the loop."""

    def __init__(self) -> None:
        self.fd: int = _libc.inotify_init1(_IN_CLOEXEC | _IN_NONBLOCK)
        self._armed: dict[int, Callable[[], None]] = {}

    def arm(self, directory: str, then: Callable[[], None]) -> int:
        """-1 when the kernel has no watch left: the log then has a mark at its end only."""
        watch: int = _libc.inotify_add_watch(
            self.fd, directory.encode(), _IN_MODIFY | _IN_ONESHOT | _IN_ONLYDIR
        )
        if watch >= 0:
            self._armed[watch] = then
        return watch

    def disarm(self, watch: int) -> None:
        if self._armed.pop(watch, None) is not None:
            _libc.inotify_rm_watch(self.fd, watch)

    def ready(self) -> None:
        try:
            events = os.read(self.fd, 65536)
        except BlockingIOError:
            return
        at = 0
        while at < len(events):
            watch, _, _, length = struct.unpack_from("iIII", events, at)
            at += 16 + length
            # Each firing is followed by a notice that the watch is gone, which finds nothing here.
            then = self._armed.pop(watch, None)
            if then is not None:
                then()


class Outlets:
    """The pipes that are /dev/stdout and /dev/stderr in a sandbox.

    A shell that redirects to them opens them anew and cuts off what is there: with the log itself behind those names,
    `echo x > /dev/stderr` would erase it. What comes out of the pipes is appended to the log here.
    """

    def __init__(self, directory: str, log: "Log") -> None:
        self._streams = log.streams
        self._held = [b"", b""]
        self.fds = self.open(directory)

    @staticmethod
    def open(directory: str) -> tuple[int, int]:
        """The reading ends, which are made if they are missing. Raises OSError."""
        try:
            return Outlets._open(directory)
        except FileNotFoundError:
            make_pipes(directory)
            return Outlets._open(directory)

    @staticmethod
    def _open(directory: str) -> tuple[int, int]:
        # Open for writing too: without a writer a pipe would always be ready to tell of its end.
        flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
        out = os.open(f"{directory}/{PIPES[0]}", flags)
        try:
            return out, os.open(f"{directory}/{PIPES[1]}", flags)
        except OSError:
            os.close(out)
            raise

    def pour(self, number: int) -> bool:
        """All that one holds at the moment. False: the disk is full, and it is to be called again after a while."""
        if not self._held[number]:
            with contextlib.suppress(BlockingIOError):
                # One turn takes no more than a pipe can hold: who writes without pause must not keep us here.
                self._held[number] = os.read(self.fds[number], 1 << 20)
        while self._held[number]:
            try:
                sent = os.write(self._streams[number], self._held[number])
            except OSError as error:
                FULL.failed(error)
                return False
            self._held[number] = self._held[number][sent:]
            FULL.over()
        return True

    def close(self) -> None:
        for number, fd in enumerate(self.fds):
            # What was held before, then what is there since.
            if self.pour(number):
                self.pour(number)
            os.close(fd)


class Log:
    """The two streams of one replica, open for appending, and their index."""

    def __init__(self, directory: str, limit: int) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._directory = directory
        self.limit = max(limit, 2 * _HEAD)
        self.streams = (
            os.open(directory + "/stdout", flags, 0o640),
            os.open(directory + "/stderr", flags, 0o640),
        )
        self.behind = False
        """The disk was full when the last mark was to be written: `mark` is to be called again."""
        self._marks = -1
        self._at = 0
        self._sizes = (0, 0)
        self._kept_from = [0, 0]
        if os.path.exists(directory + "/marks"):
            self._resume()

    def mark(self) -> bool:
        """Whether it had grown since the last one."""
        # Without a sandbox a program can cut off its own log. Marks never go back.
        out = max(os.fstat(self.streams[0]).st_size, self._sizes[0])
        err = max(os.fstat(self.streams[1]).st_size, self._sizes[1])
        if (out, err) == self._sizes:
            self.behind = False
            return False
        at = max(time.time_ns(), self._at + APART)
        self.behind = not self._write_mark(MARK.pack(at, out, err))
        if not self.behind:
            self._at, self._sizes = at, (out, err)
        return True

    def trim(self) -> bool:
        """Beyond the limit only the first MiB and the last half of the limit are kept. Whether it had to."""
        cut = False
        for stream, size in enumerate(self._sizes):
            if size - self._kept_from[stream] <= self.limit - _HEAD:
                continue
            tail = (size - max(self.limit // 2, 1 << 16)) & ~0xFFF
            if tail > _HEAD and self._punch(stream, tail):
                cut = True
            self._kept_from[stream] = max(tail, 0)
        return cut

    def close(self) -> None:
        for fd in (*self.streams, self._marks):
            if fd >= 0:
                os.close(fd)

    def _write_mark(self, mark: bytes) -> bool:
        try:
            if self._marks < 0:
                self._open_marks()
            wrote = os.write(self._marks, mark)
            if wrote != len(mark):
                os.ftruncate(self._marks, os.fstat(self._marks).st_size - wrote)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            FULL.failed(error)
            return False
        FULL.over()
        return True

    def _resume(self) -> None:
        """After a restart of the keeper: go on where the index ends."""
        self._open_marks()
        whole = os.fstat(self._marks).st_size // MARK.size * MARK.size
        os.ftruncate(self._marks, whole)
        if whole:
            with open(self._directory + "/marks", "rb") as file:
                file.seek(whole - MARK.size)
                self._at, *sizes = MARK.unpack(file.read(MARK.size))
            self._sizes = (sizes[0], sizes[1])

    def _punch(self, stream: int, until: int) -> bool:
        mode = _PUNCH_HOLE | _KEEP_SIZE
        return _libc.fallocate(self.streams[stream], mode, _HEAD, until - _HEAD) == 0

    def _open_marks(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._marks = os.open(self._directory + "/marks", flags, 0o640)
