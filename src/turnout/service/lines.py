"""Lines and their times, out of a replica's raw streams and the marks beside them.

A line's time is that of the first mark that covers its end, and as many nanoseconds later as its end lies bytes behind
the mark before. Marks are at least a millisecond apart, so times never go back; and a line's time can be told without
reading the lines before it. A line without an end shows up once its replica has ended; one longer than a MiB is cut
where a MiB of the stream has no line end at all.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

from turnout.job import Mark, ReplicaLog

_CHUNK = 1 << 16
_LONGEST = 1 << 20
_MARKS_AT_ONCE = 512
_LAST_UNDER_MARK = 999_999


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
        self._hole = log.hole(number)

    def lines(self, offset: int = 0, since: int = 0) -> Iterator[RawLine]:
        """Lines not older than `since`, from `offset`, which is where one begins, as far as marks cover them."""
        index = max(self._marks.covering(offset), self._marks.before(since))
        if index >= len(self._marks):
            return
        covered = self._marks.size(index - 1)
        for start, end, text in self._split(max(offset, self._line_start(covered))):
            while end > self._marks.size(index):
                covered, index = self._marks.size(index), index + 1
                if index >= len(self._marks):
                    return
            at = self._marks.at(index) + min(end - 1 - covered, _LAST_UNDER_MARK)
            if at >= since:
                yield RawLine(at, start, end, text)

    def last(self, most: int) -> Iterator[RawLine]:
        """The lines that their last `most` bytes have to do with; the first of them may begin before those."""
        end = self._log.size(self._number)
        # What has no end yet is no line, and what no mark covers is not told.
        begin = (end if self._final else self._line_start(min(end, self.covered(self.marks - 1)))) - most
        if self._hole and begin < self._hole[1]:
            begin -= self._hole[1] - self._hole[0]
        return self.lines(self._line_start(max(0, begin)))

    def text_of(self, line: RawLine) -> bytes:
        """With its line end, which the last one gets if it has none. A line that was cut has one at its last piece."""
        cut = line.end - line.start == len(line.text) and line.end < self._log.size(self._number)
        return line.text if cut else line.text + b"\n"

    def size(self) -> int:
        """Bytes that are there, with the last line's end if the replica has ended."""
        end = self._log.size(self._number)
        given_up = self._hole[1] - self._hole[0] if self._hole else 0
        unended = self._final and end and self._log.read(self._number, end - 1, 1) != b"\n"
        return end - given_up + bool(unended)

    def ends(self, offset: int = 0) -> Iterator[int]:
        """Where each line ends of those that `lines` has from `offset` on."""
        covered = self.covered(self.marks - 1)
        return takewhile(lambda end: end <= covered, (end for _, end, _ in self._split(offset)))

    @property
    def marks(self) -> int:
        return len(self._marks)

    def covered(self, mark: int) -> int:
        """How many bytes there were at that mark; lines that end in them come before all others, in every stream."""
        return self._marks.size(mark)

    def _line_start(self, position: int) -> int:
        """Where the line begins that `position` is in."""
        window = max(0, position - _LONGEST)
        before = self._log.read(self._number, window, position - window) if position else b""
        return window + before.rfind(b"\n") + 1 if b"\n" in before else position - position % _LONGEST

    def _split(self, position: int) -> Iterator[tuple[int, int, bytes]]:
        """(start, end, text) of every line from `position`, which is where one begins, on."""
        pending, start = b"", position
        while True:
            if self._hole and self._hole[0] <= position < self._hole[1]:
                position = start = self._after_hole(self._hole[1])
                pending = b""
            # Up to where chunks from the beginning would end, so that long lines are cut at the same places.
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

    def _after_hole(self, position: int) -> int:
        """The first whole line behind the part that was given up."""
        chunk = self._log.read(self._number, position, _LONGEST)
        return position + chunk.find(b"\n") + 1


class _Marks:
    """Marks by number, read in slices; after the end of the replica one more that covers whatever is left."""

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
        place = index - self._first
        # A program without a sandbox can shorten its own index while it is being read.
        return self._slice[place] if place < len(self._slice) else Mark(0, 0, 0)
