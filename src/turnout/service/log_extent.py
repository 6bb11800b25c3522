"""Places in a log for a scroll bar: how many bytes were printed before a time, and when a byte was printed.

Both are as exact as the marks, which are a millisecond or more apart. Lines are exact only by their time.
"""

from collections.abc import Sequence
from typing import NamedTuple

from turnout.service.lines import Stream


class Extent(NamedTuple):
    size: int
    """Bytes of all streams."""
    position: int
    """Bytes before `at`."""
    at: int
    """Nanoseconds since 1970; 0 in an empty log."""


def measure(streams: Sequence[Stream], at: int | None, position: int | None) -> Extent:
    """`at`: find the position of a time. `position`: find the time of a byte. Neither: the beginning."""
    size = sum(stream.written for stream in streams)
    spans = [span for stream in streams if (span := stream.times)]
    if not spans:
        return Extent(size, 0, 0)
    first, last = min(span[0] for span in spans), max(span[1] for span in spans)
    if position is not None:
        at = _time_of(streams, position, first, last)
    elif at is None:
        at = first
    return Extent(size, _before(streams, at), at)


def _time_of(streams: Sequence[Stream], position: int, low: int, high: int) -> int:
    """The last time before which at most `position` bytes were printed."""
    while low < high:
        middle = (low + high + 1) // 2
        if _before(streams, middle) <= position:
            low = middle
        else:
            high = middle - 1
    return low


def _before(streams: Sequence[Stream], at: int) -> int:
    return sum(stream.printed_before(at) for stream in streams)
