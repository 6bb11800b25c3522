"""Directories in which spares are made. If that becomes slow, the next ones are made in another part of the disk.

ext4 puts the files of a directory into one part of the disk, its block group. Without a journal it does not use an
inode again for some minutes after it was freed, and looks at each of them for every new file: after the removal of a
few thousand files, a new one nearby takes ten times as long. So a batch of spares is made in a directory of its own,
and the directory above has a flag with which ext4 spreads what is made in it over all block groups.
"""

import contextlib
import fcntl
import math
import os
import struct
import time
from collections.abc import Iterator

_GET_FLAGS, _SET_FLAGS, _TOP_LEVEL = 0x80086601, 0x40086602, 0x20000
_FLAGS = struct.Struct("l")
_MEASURED = 8
"""After this many spares, it is decided whether to begin a new batch."""
_SLOW = 2.0
"""A batch that is this many times slower than the fastest one gets no more spares."""
_FORGET = 1.01
"""The fastest time counts less and less, because the speed of a machine changes."""


class Batches:
    def __init__(self, above: str, mode: int) -> None:
        """`above` exists. `mode` is that of a batch. Raises OSError."""
        self._above, self._mode = above, mode
        self._spread = _spread_directories(above)
        self.current = self._new() if self._spread else above
        """The directory to make spares in. Where the file system cannot spread directories, there is only this one."""
        self._left: list[str] = []
        """Batches that are not used any more and may still have spares."""
        self._fastest = math.inf
        self._seconds, self._count = 0.0, 0

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """Measures the making of one spare inside."""
        # CPU time: that of a busy machine or a slow disk says nothing about the place.
        before = time.thread_time()
        yield
        if self._spread:
            self._add(time.thread_time() - before)

    def _add(self, seconds: float) -> None:
        self._seconds, self._count = self._seconds + seconds, self._count + 1
        if self._count < _MEASURED:
            return
        if self._seconds > _SLOW * self._fastest:
            with contextlib.suppress(OSError):
                self._leave()
        self._left = [path for path in self._left if not _removed(path)]
        self._fastest = min(self._fastest * _FORGET, self._seconds)
        self._seconds, self._count = 0.0, 0

    def _leave(self) -> None:
        left, self.current = self.current, self._new()
        self._left.append(left)

    def _new(self) -> str:
        # The name decides where ext4 puts it.
        path = f"{self._above}/{time.time_ns()}"
        os.mkdir(path, self._mode)
        return path


def _spread_directories(path: str) -> bool:
    """Makes the file system spread the directories that are made in `path`. Returns False if it cannot."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        flags = _FLAGS.unpack(fcntl.ioctl(fd, _GET_FLAGS, _FLAGS.pack(0)))[0]
        fcntl.ioctl(fd, _SET_FLAGS, _FLAGS.pack(flags | _TOP_LEVEL))
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _removed(path: str) -> bool:
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
