"""A replica's log as one text: the lines of both streams in order of time, one attempt after the other.

Only the requested part is held in memory.
"""

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from turnout.service.line_counts import Counts
from turnout.service.lines import LAST_UNDER_MARK, RawLine, Stream

Streams = Sequence[Stream]
"""The streams of one attempt."""

_BLOCKS = 8
"""Blocks that one call of `count` counts."""
_LINES_AT_ONCE = 4096
_MOST_LINES = 100_000
"""The most lines that `tail` returns of a log that has to be sorted."""


class Numbered(NamedTuple):
    """Consecutive lines. `first` is the number of the first one, counted from 1."""

    first: int
    lines: list[bytes]
    total: int
    """The number of lines of the whole log at the moment."""


def tail(attempts: Sequence[Streams], most: int) -> bytes:
    """The last lines, at most `most` bytes together; the end of the last line if it is longer than that."""
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
    """The whole log, in pieces of little more than `most` bytes."""
    gathered: list[bytes] = []
    held = 0
    for streams in attempts:
        single = _single_stream(streams)
        texts = _raw(single) if single else _merged(streams, [stream.lines() for stream in streams])
        for text in texts:
            gathered.append(text)
            held += len(text)
            if held >= most or len(gathered) == _LINES_AT_ONCE:
                yield b"".join(gathered)
                gathered, held = [], 0
    if gathered:
        yield b"".join(gathered)


def count(attempts: Sequence[Streams], counts: Sequence[Sequence[Counts]]) -> bool:
    """Count lines for a few milliseconds; True if all lines are counted."""
    for streams, each in zip(attempts, counts, strict=True):
        for stream, stream_counts in zip(streams, each, strict=True):
            if not stream_counts.extend(stream, _BLOCKS):
                return False
    return True


def numbered(
    attempts: Sequence[Streams],
    counts: Sequence[Sequence[Counts]],
    first: int | None,
    count: int,
    descending: bool,
    most: int,
) -> Numbered:
    """`count` lines from number `first`, or, if descending, up to it; None: from the first, or up to the last.

    Returns fewer lines if they have more than `most` bytes, but at least one. Requires a complete `count`.
    """
    indexes = [_Index(streams, each) for streams, each in zip(attempts, counts, strict=True)]
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
    """Finds lines of an attempt by their numbers in order of time, without reading the lines before them."""

    def __init__(self, streams: Streams, counts: Sequence[Counts]) -> None:
        self._streams = list(zip(streams, counts, strict=True))
        self._marks = min(stream.marks for stream in streams)
        self.count = self._until([stream.end for stream in streams])

    def between(self, begin: int, end: int) -> Iterator[bytes]:
        """Lines `begin` to `end` - 1, counted from 0."""
        if begin >= end:
            return iter(())
        offsets, passed = self._find(begin)
        streams = [stream for stream, _ in self._streams]
        lines = [stream.lines(offset) for stream, offset in zip(streams, offsets, strict=True)]
        return islice(_merged(streams, lines), begin - passed, end - passed)

    def _find(self, number: int) -> tuple[list[int], int]:
        """Offsets in each stream shortly before this line, and the number of lines before them."""
        # Lines are ordered by mark, and under one mark by the distance of their end from the mark before.
        mark = bisect_right(range(self._marks), number, key=lambda mark: self._until(self._at(mark))) - 1
        steps = range(LAST_UNDER_MARK + 1)
        step = bisect_right(steps, number, key=lambda step: self._until(self._at(mark, step))) - 1
        at = self._at(mark, step)
        passed = self._until(at)
        offsets = [
            position if stream.ends_without(position) else stream.line_start(position)
            for (stream, _), position in zip(self._streams, at, strict=True)
        ]
        # Beyond LAST_UNDER_MARK bytes all times are equal: one stream follows the other.
        for stream_index, (stream, counts) in enumerate(self._streams):
            before = counts.until(stream, at[stream_index])
            more = min(number - passed, counts.until(stream, stream.covered(mark)) - before)
            if step < LAST_UNDER_MARK or more <= 0:
                continue
            offsets[stream_index] = counts.begin(stream, before + more)
            passed += more
        return offsets, passed

    def _at(self, mark: int, step: int = 0) -> list[int]:
        """The position in each stream that is `step` bytes after the mark before this one, but not after this one."""
        return [min(stream.covered(mark - 1) + step, stream.covered(mark)) for stream, _ in self._streams]

    def _until(self, offsets: Sequence[int]) -> int:
        found = zip(self._streams, offsets, strict=True)
        return sum(counts.until(stream, offset) for (stream, counts), offset in found)


def _window(first: int | None, count: int, descending: bool, total: int) -> tuple[int, int]:
    """(first line, end), counted from 0."""
    if descending:
        end = total if first is None else max(0, min(first, total))
        return max(0, end - count), end
    begin = 0 if first is None else max(0, min(first - 1, total))
    return begin, min(begin + count, total)


def _last_lines(streams: Streams, most: int) -> tuple[deque[bytes], bytes]:
    """The last lines with at most `most` bytes, and the line before them, if there is one."""
    if single := _single_stream(streams):
        return _last_of(single, most)
    kept: deque[bytes] = deque()
    held = 0
    reversed_streams = list(reversed(streams))
    for text in _merged(reversed_streams, [stream.lines_back() for stream in reversed_streams], reverse=True):
        if held + len(text) > most or len(kept) == _MOST_LINES:
            return kept, text
        kept.appendleft(text)
        held += len(text)
    return kept, b""


def _last_of(stream: Stream, most: int) -> tuple[deque[bytes], bytes]:
    """Like `_last_lines`, but all lines in one piece."""
    begin = max(0, stream.end - most)
    text = b"".join(_raw(stream, begin))
    if stream.line_start(begin) == begin and len(text) <= most:
        return deque((text,)), text if begin else b""
    cut = text.find(b"\n") + 1 or len(text)
    return deque((text[cut:],) if cut < len(text) else ()), text


def _single_stream(streams: Streams) -> Stream | None:
    """The single stream with output, if there is exactly one: it needs no sorting."""
    written = [stream for stream in streams if stream.written]
    return written[0] if len(written) == 1 else None


def _raw(stream: Stream, begin: int = 0) -> Iterator[bytes]:
    for _, text in stream.texts(begin, stream.end):
        yield text
    if stream.ends_without(stream.end):
        yield b"\n"


def _merged(
    streams: Streams, lines: Sequence[Iterator[RawLine]], *, reverse: bool = False
) -> Iterator[bytes]:
    """The text of the lines in order of time."""
    timed = map(_timed, streams, lines)
    return (text for _, text in heapq.merge(*timed, key=lambda line: line[0], reverse=reverse))


def _timed(stream: Stream, lines: Iterator[RawLine]) -> Iterator[tuple[int, bytes]]:
    return ((line.at, stream.text_of(line)) for line in lines)
