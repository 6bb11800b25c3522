"""Inbound: chooses the size of a write.

Large writes get large pages from the kernel. That is fast, unless the host of a virtual machine has reclaimed the free
memory of its guest; then small writes, which reuse recently freed pages, are several times as fast.
"""

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

SMALL, LARGE = 32 << 10, 256 << 10
_TRY_OTHER_EVERY = 32
"""Every so many writes the other size is tried."""
_WEIGHT = 0.25
"""The weight of the last measurement in the moving average."""


class WriteSize:
    """Small or large, whichever was cheaper recently. Threads share it without a lock: a lost update does no harm."""

    def __init__(self) -> None:
        self._costs = {LARGE: 0.0, SMALL: 0.0}
        """CPU nanoseconds per byte; 0: not tried yet."""
        self._count = 0

    def next(self) -> int:
        self._count += 1
        pick = min if self._count % _TRY_OTHER_EVERY else max
        return pick(self._costs, key=self._costs.__getitem__)

    def record(self, size: int, cost: float) -> None:
        known = self._costs[size]
        self._costs[size] = known + (cost - known) * _WEIGHT if known else cost


_write_size = WriteSize()
"""Shared by all writes, because they use the same memory."""


def write_all(fd: int, data: "Buffer", at: int) -> None:
    view = memoryview(data)
    total, size, before = view.nbytes, _write_size.next(), time.thread_time_ns()
    while view.nbytes:
        written = os.pwrite(fd, view[:size], at)
        view, at = view[written:], at + written
    if total >= LARGE:
        _write_size.record(size, (time.thread_time_ns() - before) / total)
