"""Measures how much disk a directory tree uses, in a process of its own.

A program may have made any tree there, and may change it meanwhile. So this works with descriptors, follows no link,
does not recurse, and has only a few directories open at a time. It counts the allocated blocks of a file, not its size,
and counts each file once, however many names it has.
"""

import contextlib
import json
import os
import resource
import select
import signal
import socket
import stat
import time
from collections.abc import Generator, Iterator
from itertools import islice
from typing import NamedTuple

from ..replicas import users
from . import deleted_files

_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FIND = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEEDED = 0o500
_BLOCK = 512
_LEVELS = 64
"""This many directories on the way down are open at a time; deeper ones are found again by `..`."""
_SLICE = 1000
"""Entries of one directory before another measurement continues."""
_ENOUGH_ENTRIES = 100_000
"""After this many entries, it stops as soon as the limit is exceeded."""
_MAX_LINKED = 100_000
_MAX_NAMES = 100_000
_MAX_AT_ONCE = 16
_NICE = 10
_PACKET = 1 << 16


Measured = Generator[None, None, int]
"""Yields now and then, so that other measurements can continue; returns the bytes."""


def measure(top: str, limit: int) -> Measured:
    """Measures `top`. It may stop early once `limit` is exceeded. What does not exist uses nothing.

    A directory that its owner may not read has another mode while it is measured.
    """
    count = _Count(limit)
    try:
        with contextlib.suppress(OSError):
            count.enter(top, None)
        while count.levels and (count.bytes <= limit or count.entries < _ENOUGH_ENTRIES):
            if count.step():
                yield
        return count.bytes
    finally:
        count.close()


class _Level:
    """A directory that is being read."""

    __slots__ = ("deep", "entries", "fd", "identity", "mode", "names")

    def __init__(self, fd: int, mode: int | None, deep: bool) -> None:
        self.fd = fd
        """-1: closed while one below it is read."""
        self.mode = mode
        """Its mode, if that was changed to read it."""
        self.deep = deep
        """It is read to its end before its subdirectories, `names`, are entered."""
        self.names: list[str] = []
        status = os.fstat(fd)
        self.identity = (status.st_dev, status.st_ino)
        self.entries = os.scandir(fd)

    def leave(self) -> None:
        self.entries.close()
        if self.fd >= 0:
            if self.mode is not None:
                with contextlib.suppress(OSError):
                    os.fchmod(self.fd, self.mode)
            os.close(self.fd)
            self.fd = -1


class _Count:
    def __init__(self, limit: int) -> None:
        self.bytes = 0
        self.entries = 0
        self.levels: list[_Level] = []
        self._large = max(limit >> 14, 1)
        """Files of at least this size are remembered, because a file that is renamed meanwhile is found twice."""
        self._seen: set[int] = set()

    def enter(self, name: str, above: int | None) -> None:
        """Raises OSError."""
        fd, mode = _open_directory(name, above)
        try:
            self.levels.append(_Level(fd, mode, len(self.levels) >= _LEVELS))
        except OSError:
            os.close(fd)
            raise

    def step(self) -> bool:
        """Handles the next entry, or changes the directory. Returns whether another measurement may continue."""
        level = self.levels[-1]
        entry = _next(level.entries)
        if entry is None:
            if level.names:
                self._descend(level, level.names.pop())
            else:
                self._ascend()
            return False
        self.entries += 1
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            return False
        if status.st_dev == level.identity[0]:
            self._add(status)
            if stat.S_ISDIR(status.st_mode):
                if not level.deep:
                    self._descend(level, entry.name)
                elif len(level.names) < _MAX_NAMES:
                    level.names.append(entry.name)
        return self.entries % _SLICE == 0

    def close(self) -> None:
        while self.levels:
            self.levels.pop().leave()

    def _add(self, status: os.stat_result) -> None:
        size = status.st_blocks * _BLOCK
        linked = status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode)
        if size >= self._large or (linked and len(self._seen) < _MAX_LINKED):
            if status.st_ino in self._seen:
                return
            self._seen.add(status.st_ino)
        elif linked:
            # Too many to remember. Assume that all of its names are in this tree.
            size //= status.st_nlink
        self.bytes += size

    def _descend(self, level: _Level, name: str) -> None:
        try:
            self.enter(name, level.fd)
        except OSError:
            return
        if level.deep:
            os.close(level.fd)
            level.fd = -1

    def _ascend(self) -> None:
        below = self.levels.pop()
        if self.levels and self.levels[-1].fd < 0:
            self.levels[-1].fd = _reopen_parent(below, self.levels[-1].identity)
            # It was moved elsewhere. The rest of that branch is measured next time.
            while self.levels[-1].fd < 0:
                self.levels.pop().leave()
        below.leave()


def _next(entries: Iterator[os.DirEntry[str]]) -> os.DirEntry[str] | None:
    try:
        return next(entries, None)
    except OSError:
        return None


def _open_directory(name: str, above: int | None) -> tuple[int, int | None]:
    """Opens the directory. Returns its mode too, if that had to be changed. Raises OSError."""
    try:
        fd = os.open(name, _READ, dir_fd=above)
    except PermissionError:
        return _open_unreadable(name, above)
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    if mode & _NEEDED == _NEEDED or os.geteuid() == 0:
        return fd, None
    try:
        os.fchmod(fd, mode | _NEEDED)
    except OSError:
        # It belongs to another user, but is readable.
        return fd, None
    return fd, mode


def _open_unreadable(name: str, above: int | None) -> tuple[int, int | None]:
    found = os.open(name, _FIND, dir_fd=above)
    try:
        mode = stat.S_IMODE(os.fstat(found).st_mode)
        # An open directory can no longer be replaced by a link.
        os.chmod(f"/proc/self/fd/{found}", mode | _NEEDED)
        return os.open(".", _READ, dir_fd=found), mode
    finally:
        os.close(found)


def _reopen_parent(below: _Level, identity: tuple[int, int]) -> int:
    """-1 if the directory in which it was found is no longer above it."""
    try:
        fd = os.open("..", _READ, dir_fd=below.fd)
    except OSError:
        return -1
    status = os.fstat(fd)
    if (status.st_dev, status.st_ino) == identity:
        return fd
    os.close(fd)
    return -1


# The process.


class _Measurement(NamedTuple):
    began: float
    measured: Measured


def start() -> tuple[int, socket.socket]:
    """Starts the process. Returns its id and a connection; it ends when the connection is closed. Raises OSError.

    It replies to a packet `[number, user, directory, limit, root process, marker]` with `[number, bytes, seconds]`;
    `[number]` cancels that. It measures with the rights of that user, see `users`.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        try:
            _become_measurer(theirs.fileno())
            _serve(theirs)
        finally:
            os._exit(0)
    theirs.close()
    ours.setblocking(False)
    return pid, ours


def _become_measurer(connection: int) -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    os.closerange(3, connection)
    os.closerange(connection + 1, max(most, connection + 2))
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)


def _serve(connection: socket.socket) -> None:
    """Measurements take turns, so that a large directory does not delay the others."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    measurements: dict[int, _Measurement] = {}
    while True:
        while poll.poll(0 if measurements else None):
            packet = connection.recv(_PACKET)
            if not packet:
                return
            number, *arguments = json.loads(packet)
            if cancelled := measurements.pop(number, None):
                cancelled.measured.close()
            if arguments:
                measurements[number] = _Measurement(time.monotonic(), _measure_all(*arguments))
        for number, measurement in list(islice(measurements.items(), _MAX_AT_ONCE)):
            try:
                next(measurement.measured)
            except StopIteration as done:
                del measurements[number]
                connection.send(
                    json.dumps([number, done.value, time.monotonic() - measurement.began]).encode()
                )


def _measure_all(user: int, top: str, limit: int, root: int, marker: str) -> Measured:
    """Measures the files in the tree, then the deleted files that are still open."""
    measured = measure(top, limit)
    try:
        while True:
            try:
                with users.acting_as(user):
                    next(measured)
            except StopIteration as done:
                used: int = done.value
                break
            yield
    finally:
        with users.acting_as(user):
            measured.close()
    with users.acting_as(user):
        location = deleted_files.locate(top)
    if location is None:
        return used
    seen: set[int] = set()
    # Access to a sandbox depends on who owns its user namespace: the job's user or the supervisor.
    for access in (users.acting_as,) if user == users.OWN else (users.acting_as, users.with_file_access_of):
        sizes = deleted_files.sizes(location, root, marker, seen)
        while used <= limit:
            with access(user):
                size = next(sizes, None)
            if size is None:
                break
            used += size
            yield
    return used
