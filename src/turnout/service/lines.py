"""Reads lines and their times from a replica's raw streams and from the marks that the supervisor writes.

A line's time is that of the first mark that covers its end, plus a nanosecond for each byte between the mark before and
the end of the line. Marks are at least a millisecond apart, so times never decrease, and a line's time does not depend
on the lines before it. A line without a line end appears once its replica has ended. A MiB without a line end is cut at
its end.
"""

from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property
from itertools import takewhile
from typing import NamedTuple

from turnout.job import Mark, ReplicaLog

_CHUNK = 1 << 16
_PIECE = 1 << 18
_LONGEST = 1 << 20
_MARKS_AT_ONCE = 512
LAST_UNDER_MARK = 999_999
_FOREVER = (1 << 63) - 1


class RawLine(NamedTuple):
    at: int
    start: int
    end: int
    """Where the next line begins."""
    text: bytes


class Stream:
    """One stream of one replica. `ended` is when the replica ended; None while more may come."""

    def __init__(self, log: ReplicaLog, number: int, ended: int | None) -> None:
        self._log = log
        self._number = number
        self._marks = _Marks(log, number, ended)
        self._final = ended is not None
        self._hole = self.hole = log.hole(number)

    def lines(self, offset: int = 0, since: int = 0) -> Iterator[RawLine]:
        """Lines from `offset`, the beginning of a line, that marks cover and that are not older than `since`."""
        index = max(self._marks.covering(offset), self._marks.before(since))
        if index >= len(self._marks):
            return
        covered = self._marks.size(index - 1)
        for start, end, text in self._split(max(offset, self.line_start(covered))):
            while end > self._marks.size(index):
                covered, index = self._marks.size(index), index + 1
                if index >= len(self._marks):
                    return
            at = self._marks.at(index) + min(end - 1 - covered, LAST_UNDER_MARK)
            if at >= since:
                yield RawLine(at, start, end, text)

    def lines_back(self, before: int | None = None, until: int = _FOREVER) -> Iterator[RawLine]:
        """The same lines in reverse: those that end at `before` or earlier and are not later than `until`."""
        end = self.end if before is None else min(before, self.end)
        if not len(self._marks):
            return
        covered = self._marks.size(self._marks.before(until))
        if covered < end:
            end = self.line_start(covered)
        while end > 0:
            begin = self.line_start(max(0, end - _CHUNK))
            block = takewhile(lambda line, end=end: line.end <= end, self.lines(begin))
            yield from reversed([line for line in block if line.at <= until])
            end = begin

    @cached_property
    def end(self) -> int:
        """Where the last visible line ends."""
        # A line without a line end, or without a mark that covers it, is not visible yet.
        return (
            self.written if self._final else self.line_start(min(self.written, self.covered(self.marks - 1)))
        )

    @cached_property
    def times(self) -> tuple[int, int] | None:
        """Of the first and the last mark; None without any."""
        count = len(self._marks)
        return (self._marks.at(0), self._marks.at(count - 1)) if count else None

    def printed_before(self, time: int) -> int:
        """About how many bytes. Between two marks, a byte counts as a nanosecond, as in the times of lines."""
        if self.times is None or time < self.times[0]:
            return 0
        mark = self._marks.before(time)
        return min(self._marks.size(mark), self._marks.size(mark - 1) + time - self._marks.at(mark))

    def beginning(self, since: int) -> int:
        """Where the first line begins that may be from that time or later."""
        return self.line_start(self._marks.size(self._marks.before(since) - 1)) if since else 0

    def outside_hole(self, position: int) -> int:
        """The position, or that of the first whole line after the hole if it is in the hole."""
        return self._resumes if self._hole and self._hole[0] <= position < self._resumes else position

    def read(self, position: int, count: int) -> bytes:
        """At most so many bytes; fewer at the end and before the hole."""
        return self._log.read(self._number, position, count)

    def text_of(self, line: RawLine) -> bytes:
        """With a line end, also if the last line has none. A cut line has it only at its last piece."""
        cut = line.end - line.start == len(line.text) and line.end < self._log.size(self._number)
        return line.text if cut else line.text + b"\n"

    def size(self) -> int:
        """Bytes without the hole, plus a missing last line end if the replica has ended."""
        end = self._log.size(self._number)
        missing = self._hole[1] - self._hole[0] if self._hole else 0
        unended = self._final and end and self._log.read(self._number, end - 1, 1) != b"\n"
        return end - missing + bool(unended)

    def line_start(self, position: int) -> int:
        """Where the line at `position` begins; for a position in the hole, the last line before it."""
        floor = 0
        if self._hole and position > self._hole[0]:
            if position <= self._resumes:
                position = self._hole[0]
            else:
                floor = self._resumes
        block = position - position % _LONGEST
        for window in (max(floor, position - _CHUNK), max(floor, block - _LONGEST)):
            before = self._log.read(self._number, window, position - window) if position > window else b""
            if b"\n" in before:
                return window + before.rfind(b"\n") + 1
        # A whole block without a line end is cut at its end.
        return block if block - _LONGEST >= floor and block else floor

    def texts(self, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
        """(position, text) of that range, without the hole and the line that it cuts."""
        while begin < end:
            if self._hole and self._hole[0] <= begin < self._resumes:
                begin = self._resumes
                continue
            upto = self._hole[0] if self._hole and begin < self._hole[0] < end else end
            text = self._log.read(self._number, begin, min(_PIECE, upto - begin))
            if not text:
                return
            yield begin, text
            begin += len(text)

    def ends_without(self, position: int) -> bool:
        """Whether the replica has ended, its last line has no line end, and it ends at `position` or before."""
        return self._final and position >= self.written and self.line_start(self.written) < self.written

    @cached_property
    def written(self) -> int:
        return self._log.size(self._number)

    @property
    def longest(self) -> int:
        """A block of this many bytes without a line end is cut at its end."""
        return _LONGEST

    @property
    def marks(self) -> int:
        return len(self._marks)

    def covered(self, mark: int) -> int:
        """The stream's size at that mark; lines that end there come before all later ones, in every stream."""
        return self._marks.size(mark)

    def _split(self, position: int) -> Iterator[tuple[int, int, bytes]]:
        """(start, end, text) of every line from `position`, the beginning of a line."""
        pending, start = b"", position
        while True:
            if self._hole and self._hole[0] <= position < self._hole[1]:
                position = start = self._resumes
                pending = b""
            # Chunks are aligned, so that long lines are always cut at the same positions.
            chunk = self._log.read(self._number, position, _CHUNK - position % _CHUNK)
            if not chunk:
                break
            position += len(chunk)
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                end = start + len(line) + 1
                yield start, end, line
                start = end
            if position % _LONGEST == 0 and len(pending) >= _LONGEST:
                yield start, position, pending
                pending, start = b"", position
        if pending and self._final:
            yield start, start + len(pending), pending

    @cached_property
    def _resumes(self) -> int:
        """Where the first complete line after the hole begins."""
        position = self._hole[1] if self._hole else 0
        return position + self._log.read(self._number, position, _LONGEST).find(b"\n") + 1


class _Marks:
    """Marks by number, read in slices; once the replica has ended, a last one covers the rest."""

    def __init__(self, log: ReplicaLog, stream: int, ended: int | None) -> None:
        self._log = log
        self._stream = stream
        self._count = log.mark_count()
        self._slice: list[Mark] = []
        self._first = 0
        self._last: tuple[int, int] | None = None
        if ended is not None:
            covered = self.at(self._count - 1) + 1_000_000 if self._count else 0
            self._last = (max(ended, covered), log.size(stream))

    def __len__(self) -> int:
        return self._count + (self._last is not None)

    def at(self, index: int) -> int:
        return self._last[0] if self._last and index == self._count else self._mark(index).at

    def size(self, index: int) -> int:
        if index < 0:
            return 0
        if self._last and index == self._count:
            return self._last[1]
        return self._mark(index)[1 + self._stream]

    def covering(self, offset: int) -> int:
        """The first mark that covers the byte at `offset`."""
        return bisect_left(range(len(self)), offset + 1, key=self.size)

    def before(self, time: int) -> int:
        """The last mark that is not later than `time`."""
        return max(0, bisect_left(range(len(self)), time + 1, key=self.at) - 1)

    def _mark(self, index: int) -> Mark:
        if not self._first <= index < self._first + len(self._slice):
            self._first = index
            self._slice = self._log.marks(index, min(_MARKS_AT_ONCE, self._count - index))
        position = index - self._first
        # A program without a sandbox can truncate its own index while we read it.
        return self._slice[position] if position < len(self._slice) else Mark(0, 0, 0)
