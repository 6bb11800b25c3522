"""In: how much is written at a time.

Large portions get large pieces of memory from the kernel: quick, unless a host has taken back what its guest did not
use, and then several times as slow as small ones, which are found among what was freed a moment ago.
"""

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

SMALL, LARGE = 32 << 10, 256 << 10
_LOOK_AGAIN = 32
"""So often the other one is tried."""
_WEIGHT = 0.25
"""Of the last time, against all before."""


class Portions:
    """Small or large, whichever cost less of late. Threads may use it: a count that gets lost does no harm."""

    def __init__(self) -> None:
        self._costs = {LARGE: 0.0, SMALL: 0.0}
        """Nanoseconds of a core for each byte; 0: not tried yet."""
        self._turns = 0

    def next(self) -> int:
        self._turns += 1
        pick = min if self._turns % _LOOK_AGAIN else max
        return pick(self._costs, key=self._costs.__getitem__)

    def tell(self, portion: int, cost: float) -> None:
        known = self._costs[portion]
        self._costs[portion] = known + (cost - known) * _WEIGHT if known else cost


_portions = Portions()
"""One for all that is written: it is the same memory."""


def write_all(fd: int, data: "Buffer", at: int) -> None:
    view = memoryview(data)
    size, portion, before = view.nbytes, _portions.next(), time.thread_time_ns()
    while view.nbytes:
        written = os.pwrite(fd, view[:portion], at)
        view, at = view[written:], at + written
    if size >= LARGE:
        _portions.tell(portion, (time.thread_time_ns() - before) / size)
