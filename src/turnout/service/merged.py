"""A replica's log as one text: its streams line by line in the order of time, one attempt behind the other.

However long it is, only what is asked for is held in memory.
"""

import heapq
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from turnout.service.lines import RawLine, Stream

Streams = Sequence[Stream]
"""Those of one attempt."""

_STRIDE = 4096


class Numbered(NamedTuple):
    """Lines that follow each other. `first` is the number of the first of them, counted from 1."""

    first: int
    lines: list[bytes]
    total: int
    """How many there are in the whole log at the moment."""


def tail(attempts: Sequence[Streams], most: int) -> bytes:
    """The last lines that have no more than `most` bytes together; or the end of the last, if it is longer."""
    kept: deque[bytes] = deque()
    for streams in reversed(attempts):
        lines, more = _last_lines(streams, most)
        if more and not kept and not lines:
            return more[len(more) - most :]
        kept.extendleft(reversed(lines))
        most -= sum(map(len, lines))
        if more:
            break
    return b"".join(kept)


def size(attempts: Sequence[Streams]) -> int:
    return sum(stream.size() for streams in attempts for stream in streams)


def pieces(attempts: Sequence[Streams], most: int) -> Iterator[bytes]:
    """All of it, a little more than `most` bytes at a time."""
    gathered: list[bytes] = []
    held = 0
    for streams in attempts:
        for text in _merged(streams, [stream.lines() for stream in streams]):
            gathered.append(text)
            held += len(text)
            if held >= most:
                yield b"".join(gathered)
                gathered, held = [], 0
    if gathered:
        yield b"".join(gathered)


def numbered(
    attempts: Sequence[Streams], first: int | None, count: int, descending: bool, most: int
) -> Numbered:
    """`count` lines from number `first` on, or descending: up to it; None: from the first, or up to the last.

    Fewer if they have more than `most` bytes, but one at least.
    """
    indexes = [_Index(streams) for streams in attempts]
    total = sum(index.count for index in indexes)
    begin, end = _window(first, count, descending, total)
    lines: deque[bytes] = deque()
    held = passed = 0
    for index in indexes:
        for text in index.between(max(begin + len(lines) - passed, 0), min(end - passed, index.count)):
            lines.append(text)
            held += len(text)
            if held > most and len(lines) > 1 and not descending:
                lines.pop()
                return Numbered(begin + 1, list(lines), total)
            while held > most and len(lines) > 1:
                held -= len(lines.popleft())
                begin += 1
        passed += index.count
    return Numbered(begin + 1, list(lines), total)


class _Index:
    """Where every so manieth line of an attempt's streams ends, so that far lines are found without telling times."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._ends: list[array[int]] = []
        self.count = 0
        for stream in streams:
            ends = array("q", (0,))
            number = 0
            for number, end in enumerate(stream.ends(), 1):
                if number % _STRIDE == 0:
                    ends.append(end)
            self._ends.append(ends)
            self.count += number

    def between(self, begin: int, end: int) -> Iterator[bytes]:
        """The lines from number `begin` on, counted from 0, and before `end`."""
        if begin >= end:
            return iter(())
        # All lines that a mark covers come before all others: the last mark that surely has no more than `begin`.
        marks = self._streams[0].marks
        mark = bisect_right(range(marks), begin, key=self._at_most) - 1
        passed, offsets = 0, [0] * len(self._streams)
        for number in range(len(self._streams)):
            lines, offsets[number] = self._until(number, mark)
            passed += lines
        texts = _merged(
            self._streams,
            [stream.lines(offset) for stream, offset in zip(self._streams, offsets, strict=True)],
        )
        return islice(texts, begin - passed, end - passed)

    def _at_most(self, mark: int) -> int:
        """No fewer lines than a mark covers."""
        covered = (stream.covered(mark) for stream in self._streams)
        return sum(bisect_right(ends, size) * _STRIDE for ends, size in zip(self._ends, covered, strict=True))

    def _until(self, number: int, mark: int) -> tuple[int, int]:
        """How many lines of a stream a mark covers, and where the first begins that it does not."""
        stream, ends = self._streams[number], self._ends[number]
        covered = stream.covered(mark)
        place = bisect_right(ends, covered) - 1
        lines, offset = place * _STRIDE, ends[place]
        for end in stream.ends(offset):
            if end > covered:
                break
            lines, offset = lines + 1, end
        return lines, offset


def _window(first: int | None, count: int, descending: bool, total: int) -> tuple[int, int]:
    """From and before which line, counted from 0."""
    if descending:
        end = total if first is None else max(0, min(first, total))
        return max(0, end - count), end
    begin = 0 if first is None else max(0, min(first - 1, total))
    return begin, min(begin + count, total)


def _last_lines(streams: Streams, most: int) -> tuple[deque[bytes], bytes]:
    """Those that have no more bytes than that, and the line before them, if there is one."""
    kept: deque[bytes] = deque()
    held, more = 0, b""
    for text in _merged(streams, [stream.last(most) for stream in streams]):
        kept.append(text)
        held += len(text)
        while held > most:
            more = kept.popleft()
            held -= len(more)
    return kept, more


def _merged(streams: Streams, lines: Sequence[Iterator[RawLine]]) -> Iterator[bytes]:
    """In the order of time, as text."""
    timed = map(_timed, streams, lines)
    return (text for _, text in heapq.merge(*timed, key=lambda one: one[0]))


def _timed(stream: Stream, lines: Iterator[RawLine]) -> Iterator[tuple[int, bytes]]:
    return ((line.at, stream.text_of(line)) for line in lines)
