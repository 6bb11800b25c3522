"""Log files of one replica and their marks: when each stream had how many bytes.

Programs write into the files themselves; no byte passes through here.
"""

import contextlib
import ctypes
import errno
import os
import struct
import time
from collections.abc import Callable

from ..diagnostics import Outage, run_safely
from ..replicas.spares import PIPES, make_pipes
from ..replicas.users import acting_as

MARK = struct.Struct("<QQQ")
"""Time in ns, size of stdout, size of stderr."""

APART = 1_000_000
"""Nanoseconds between two marks at least, so that the lines of one mark can get different times."""

_HEAD = 1 << 20
_IN_MODIFY, _IN_ONESHOT, _IN_ONLYDIR = 0x2, 0x80000000, 0x01000000
_IN_CLOEXEC, _IN_NONBLOCK = 0o2000000, 0o4000
_KEEP_SIZE, _PUNCH_HOLE = 1, 2

FULL = Outage("logs cannot be written")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
_libc.inotify_add_watch.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32]


class Watcher:
    """Calls back when something in a directory is written, once for each `arm`. The loop watches `fd`."""

    def __init__(self) -> None:
        self.fd: int = _libc.inotify_init1(_IN_CLOEXEC | _IN_NONBLOCK)
        self._armed: dict[int, Callable[[], None]] = {}

    def arm(self, directory: str, then: Callable[[], None]) -> int:
        """Returns -1 if the kernel has no watch left. Then the log gets only its last mark."""
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
            # The kernel also reports that a one-shot watch is gone; that event finds nothing here.
            then = self._armed.pop(watch, None)
            if then is not None:
                run_safely(then)


class StreamPipes:
    """The pipes behind /dev/stdout and /dev/stderr in a sandbox.

    A shell that redirects to one of these names opens it anew and truncates it. If it were the log itself, `echo x >
    /dev/stderr` would erase the log. So it is a pipe, and what comes out of it is appended to the log.
    """

    def __init__(self, directory: str, log: "PlainLog", user: int) -> None:
        self._streams = log.streams
        self._unwritten = [b"", b""]
        self.fds = self.open(directory, user)

    @staticmethod
    def open(directory: str, user: int) -> tuple[int, int]:
        """The reading ends. Missing pipes are made as this user. Raises OSError."""
        with acting_as(user):
            try:
                return StreamPipes._open(directory)
            except FileNotFoundError:
                make_pipes(directory)
                return StreamPipes._open(directory)

    @staticmethod
    def _open(directory: str) -> tuple[int, int]:
        # Open for writing too: a pipe without a writer would always be ready and at its end.
        flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
        out = os.open(f"{directory}/{PIPES[0]}", flags)
        try:
            return out, os.open(f"{directory}/{PIPES[1]}", flags)
        except OSError:
            os.close(out)
            raise

    def copy(self, number: int) -> bool:
        """Appends what one pipe holds to the log. False if the disk is full: call again after a while."""
        if not self._unwritten[number]:
            with contextlib.suppress(BlockingIOError):
                # One read at a time, so that a program that writes without pause does not block the supervisor.
                self._unwritten[number] = os.read(self.fds[number], 1 << 20)
        while self._unwritten[number]:
            try:
                sent = os.write(self._streams[number], self._unwritten[number])
            except OSError as error:
                FULL.failed(error)
                return False
            self._unwritten[number] = self._unwritten[number][sent:]
            FULL.recovered()
        return True

    def close(self) -> None:
        for number, fd in enumerate(self.fds):
            # First what a full disk held up, then what has come since.
            if self.copy(number):
                self.copy(number)
            os.close(fd)


class PlainLog:
    """The two streams of a replica, open for appending, and their marks."""

    def __init__(self, directory: str, limit: int) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._directory = directory
        self.limit = max(limit, 2 * _HEAD)
        self.streams = (
            os.open(directory + "/stdout", flags, 0o640),
            os.open(directory + "/stderr", flags, 0o640),
        )
        self.behind = False
        """The last mark did not fit on a full disk: call `mark` again."""
        self._marks = -1
        self._at = 0
        self._sizes = (0, 0)
        self._kept_from = [0, 0]
        if os.path.exists(directory + "/marks"):
            self._resume()

    @property
    def printed(self) -> bool:
        return self.behind or self._sizes != (0, 0)

    def mark(self) -> bool:
        """Adds a mark if the log has grown. Returns whether it had."""
        sizes = (os.fstat(self.streams[0]).st_size, os.fstat(self.streams[1]).st_size)
        return self.add_mark(time.time_ns(), *sizes)

    def add_mark(self, at: int, out: int, err: int) -> bool:
        """Adds a mark with this time and these sizes, if one is larger than before. Returns whether one was."""
        # Without a sandbox a program can truncate its own log, but marks never go back.
        out, err = max(out, self._sizes[0]), max(err, self._sizes[1])
        if (out, err) == self._sizes:
            self.behind = False
            return False
        at = max(at, self._at + APART)
        self.behind = not self._write_mark(MARK.pack(at, out, err))
        if not self.behind:
            self._at, self._sizes = at, (out, err)
        return True

    def trim(self) -> bool:
        """Beyond the limit, keeps only the first MiB and the last half of the limit. Returns whether it removed
        something.
        """
        cut = False
        for stream, size in enumerate(self._sizes):
            if size - self._kept_from[stream] <= self.limit - _HEAD:
                continue
            tail = (size - max(self.limit // 2, 1 << 16)) & ~0xFFF
            if tail > _HEAD and self._punch_hole(stream, tail):
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
        except FileNotFoundError:
            return True  # the directory was removed, so nobody can read a mark
        except OSError as error:
            FULL.failed(error)
            return False
        FULL.recovered()
        return True

    def _resume(self) -> None:
        """Continues after the last mark of an earlier supervisor or an earlier start."""
        self._open_marks()
        whole = os.fstat(self._marks).st_size // MARK.size * MARK.size
        os.ftruncate(self._marks, whole)
        if whole:
            with open(self._directory + "/marks", "rb") as file:
                file.seek(whole - MARK.size)
                self._at, *sizes = MARK.unpack(file.read(MARK.size))
            self._sizes = (sizes[0], sizes[1])

    def _punch_hole(self, stream: int, until: int) -> bool:
        mode = _PUNCH_HOLE | _KEEP_SIZE
        return _libc.fallocate(self.streams[stream], mode, _HEAD, until - _HEAD) == 0

    def _open_marks(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._marks = os.open(self._directory + "/marks", flags, 0o640)
