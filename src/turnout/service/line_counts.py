"""Counts the lines of a stream by blocks, so that a line is found by its number without reading everything before it.

Counts stay valid because a stream only grows. Counting takes about a millisecond per megabyte.
"""

from array import array
from bisect import bisect_left, bisect_right

from turnout.service.lines import Stream


class Counts:
    """For one stream: how many lines end before each block."""

    def __init__(self) -> None:
        self._ends = array("q", (0,))

    def extend(self, stream: Stream, blocks: int) -> bool:
        """Count at most `blocks` more; True if all complete blocks are counted."""
        size = stream.longest
        for _ in range(blocks):
            begin = (len(self._ends) - 1) * size
            if begin + size > stream.written:
                return True
            self._ends.append(self._ends[-1] + _lines_in(stream, begin))
        return len(self._ends) * size > stream.written

    def until(self, stream: Stream, position: int) -> int:
        """How many lines end at `position` or before."""
        block = min(position // stream.longest, len(self._ends) - 1)
        count = self._ends[block]
        count += sum(text.count(b"\n") for _, text in stream.texts(block * stream.longest, position))
        return count + stream.ends_without(position)

    def begin(self, stream: Stream, number: int) -> int:
        """Where line `number`, counted from 0, begins; the end of the last line if there are fewer."""
        block = bisect_right(self._ends, number) - 1
        rest = number - self._ends[block]
        begin = block * stream.longest
        if not rest:
            return stream.line_start(begin)
        for position, text in stream.texts(begin, min(begin + stream.longest, stream.written)):
            inside = text.count(b"\n")
            if rest <= inside:
                ends = range(1, len(text) + 1)
                return position + ends[bisect_left(ends, rest, key=lambda end: text.count(b"\n", 0, end))]
            rest -= inside
        return stream.written


def _lines_in(stream: Stream, begin: int) -> int:
    """How many lines end in a complete block. A block without a line end is cut at its end, so one line ends there."""
    lines = read = 0
    for _, text in stream.texts(begin, begin + stream.longest):
        lines += text.count(b"\n")
        read += len(text)
    return lines or read == stream.longest
