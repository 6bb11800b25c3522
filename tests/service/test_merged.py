"""A replica's log as one text: its end, its lines by number, the whole."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnout.job import Mark
from turnout.service import lines, merged
from turnout.service.line_counts import Counts
from turnout.service.lines import Stream

MILLISECOND = 1_000_000
ENDED = 1 << 40


class Recorded:
    """Two streams with alternating writes, and a mark after each pair."""

    def __init__(self, *pieces: tuple[bytes, bytes]) -> None:
        self.streams = [b"".join(piece[stream] for piece in pieces) for stream in (0, 1)]
        self._marks: list[Mark] = []
        sizes = [0, 0]
        for number, piece in enumerate(pieces, 1):
            sizes = [size + len(part) for size, part in zip(sizes, piece, strict=True)]
            self._marks.append(Mark(number * MILLISECOND, *sizes))
        self.most_read = self.bytes_read = 0

    def size(self, stream: int) -> int:
        return len(self.streams[stream])

    def read(self, stream: int, offset: int, count: int) -> bytes:
        self.most_read = max(self.most_read, count)
        self.bytes_read += len(self.streams[stream][offset : offset + count])
        return self.streams[stream][offset : offset + count]

    def hole(self, stream: int) -> None: ...

    def marks(self, first: int = 0, count: int | None = None) -> list[Mark]:
        return self._marks[first : None if count is None else first + count]

    def mark_count(self) -> int:
        return len(self._marks)


def attempts(*logs: Recorded, ended: int | None = ENDED) -> list[list[Stream]]:
    """The replica of the last attempt ended at `ended`."""
    ends = [0] * (len(logs) - 1) + [ended]
    return [[Stream(log, number, end) for number in (0, 1)] for log, end in zip(logs, ends, strict=True)]


def numbered(
    log: list[list[Stream]], first: int | None, count: int, descending: bool, most: int
) -> merged.Numbered:
    counts = [[Counts() for _ in streams] for streams in log]
    while not merged.count(log, counts):
        pass
    return merged.numbered(log, counts, first, count, descending, most)


FIRST = Recorded((b"one\ntw", b""), (b"o\n", b"oh\n"), (b"", b"no end"))
SECOND = Recorded((b"three\n", b""), (b"four\n", b""))
TEXT = b"one\ntwo\noh\nno end\nthree\nfour\n"


def test_streams_are_one_behind_the_other_line_by_line() -> None:
    assert merged.tail(attempts(FIRST, SECOND), 1000) == TEXT
    assert merged.size(attempts(FIRST, SECOND)) == len(TEXT)


@pytest.mark.parametrize("most", range(len(TEXT) + 1))
def test_the_end_has_whole_lines(most: int) -> None:
    lines = TEXT.splitlines(keepends=True)
    suffixes = [b"".join(lines[first:]) for first in range(len(lines) + 1)]
    expected = max((one for one in suffixes if len(one) <= most), key=len) or TEXT[len(TEXT) - most :]
    assert merged.tail(attempts(FIRST, SECOND), most) == expected


def test_a_line_that_is_still_being_written_is_not_there_yet() -> None:
    running = attempts(FIRST, ended=None)
    assert merged.tail(running, 1000) == b"one\ntwo\noh\n"
    assert numbered(running, None, 5, True, 1000).total == 3


def test_lines_by_number() -> None:
    log = attempts(FIRST, SECOND)
    assert numbered(log, None, 2, False, 1000) == (1, [b"one\n", b"two\n"], 6)
    assert numbered(log, 4, 2, False, 1000) == (4, [b"no end\n", b"three\n"], 6)
    assert numbered(log, None, 2, True, 1000) == (5, [b"three\n", b"four\n"], 6)
    assert numbered(log, 4, 2, True, 1000) == (3, [b"oh\n", b"no end\n"], 6)
    assert numbered(log, 1, 9, True, 1000) == (1, [b"one\n"], 6)
    assert numbered(log, 7, 2, False, 1000) == (7, [], 6)
    assert numbered(log, 99, 1, True, 1000) == (6, [b"four\n"], 6)
    assert numbered([], None, 1, True, 1000) == (1, [], 0)


def test_long_lines_make_a_shorter_answer() -> None:
    log = attempts(FIRST, SECOND)
    assert numbered(log, 2, 4, False, 9) == (2, [b"two\n", b"oh\n"], 6)
    assert numbered(log, 5, 4, True, 13) == (4, [b"no end\n", b"three\n"], 6)
    assert numbered(log, 4, 4, True, 1) == (4, [b"no end\n"], 6)


def test_the_whole_comes_in_pieces() -> None:
    found = list(merged.pieces(attempts(FIRST, SECOND), 8))
    assert b"".join(found) == TEXT
    assert all(len(piece) < 8 + len(b"no end\n") for piece in found)


def test_a_line_longer_than_a_mebibyte_keeps_its_bytes() -> None:
    text = b"short\n" + b"x" * (5 << 20) + b"\nend\n"
    log = attempts(Recorded((text, b"")))
    assert merged.tail(log, len(text)) == text
    assert b"".join(merged.pieces(log, 1 << 20)) == text
    assert numbered(log, None, 1, True, 1 << 20)[1] == [b"end\n"]


def test_of_a_long_log_only_the_end_is_read() -> None:
    log = Recorded(*[(b"%06d stdout\n" % number, b"%06d stderr\n" % number) for number in range(20_000)])
    end = merged.tail(attempts(log), 1000)
    assert end.endswith(b"019999 stdout\n019999 stderr\n")
    assert len(end) == 1000 // 14 * 14
    assert log.most_read <= 1 << 20


@pytest.mark.parametrize("number", [1, 4096, 4097, 12_345, 31_000, 39_999])
def test_far_lines_are_found_from_the_nearest_mark(number: int) -> None:
    log = Recorded(*[(b"%d\n" % (2 * n + 1), b"%d\n" % (2 * n + 2)) for n in range(20_000)])
    found = numbered(attempts(log), number, 2, False, 1000)
    assert found == (number, [b"%d\n" % number, b"%d\n" % (number + 1)], 40_000)


pieces = st.binary(max_size=6).map(lambda raw: raw.translate(bytes(b"ab\n"[i % 3] for i in range(256))))


@given(
    logs=st.lists(st.lists(st.tuples(pieces, pieces), max_size=6), min_size=1, max_size=3),
    ended=st.sampled_from([None, ENDED]),
    most=st.integers(0, 60),
    first=st.none() | st.integers(-1, 40),
    count=st.integers(0, 40),
    descending=st.booleans(),
)
@example(logs=[[(b"", b"a\n"), (b"\naa", b"")]], ended=None, most=2, first=None, count=0, descending=False)
def test_all_ways_of_reading_agree(
    logs: list[list[tuple[bytes, bytes]]],
    ended: int | None,
    most: int,
    first: int | None,
    count: int,
    descending: bool,
) -> None:
    log = attempts(*(Recorded(*one) for one in logs), ended=ended)
    whole = b"".join(merged.pieces(log, 10))
    lines = whole.splitlines(keepends=True)
    assert sorted(whole) == sorted(b"".join(line for one in log for line in everything(one)))
    assert whole.endswith(merged.tail(log, most))
    assert len(merged.tail(log, most)) <= most
    found = numbered(log, first, count, descending, 1 << 20)
    assert found.total == len(lines)
    assert found.lines == lines[found.first - 1 : found.first - 1 + len(found.lines)]
    if ended is not None:
        assert merged.size(log) == len(whole)


def everything(streams: list[Stream]) -> list[bytes]:
    return [stream.text_of(line) for stream in streams for line in stream.lines()]


def test_lines_of_one_stream_stay_in_order() -> None:
    log = Recorded(*[(b"%d\n" % n * 3, b"x\n") for n in range(50)])
    numbers = [int(line) for line in merged.tail(attempts(log), 10_000).split() if line != b"x"]
    assert all(one <= other for one, other in pairwise(numbers))


@given(
    logs=st.lists(st.lists(st.tuples(pieces, pieces), max_size=6), min_size=1, max_size=2),
    ended=st.sampled_from([None, ENDED]),
    count=st.integers(0, 9),
    under_mark=st.integers(0, 12),
)
def test_every_line_is_found_by_its_number(
    logs: list[list[tuple[bytes, bytes]]], ended: int | None, count: int, under_mark: int
) -> None:
    """Also for cut lines and lines of the same time, with small limits."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lines, "_CHUNK", 4)
        patched.setattr(lines, "_LONGEST", 8)
        patched.setattr(lines, "_PIECE", 3)
        patched.setattr(lines, "LAST_UNDER_MARK", under_mark)
        patched.setattr(merged, "LAST_UNDER_MARK", under_mark)
        log = attempts(*(Recorded(*one) for one in logs), ended=ended)
        everything = [
            text for streams in log for text in merged._merged(streams, [one.lines() for one in streams])
        ]
        assert b"".join(merged.pieces(log, 10)) == b"".join(everything)
        for number in range(1, len(everything) + 1):
            found = numbered(log, number, count, False, 1 << 20)
            assert found == (number, everything[number - 1 :][:count], len(everything))


@pytest.mark.parametrize("stderr", [b"", b"\n" * (2 << 20)])
def test_very_many_lines_are_counted_once(stderr: bytes) -> None:
    """Reading the last or distant lines does not read all lines before them."""
    size = 24 << 20
    log = Recorded((b"\n" * size, stderr))
    log_attempts = attempts(log)
    counts = [[Counts() for _ in streams] for streams in log_attempts]
    while not merged.count(log_attempts, counts):
        pass
    assert log.bytes_read <= size + len(stderr)
    total = size + len(stderr)
    for first, descending in ((None, True), (total - 3, False), (total // 2, False), (size // 3, True)):
        log.bytes_read = 0
        found = merged.numbered(log_attempts, counts, first, 50, descending, 1 << 20)
        assert (found.total, len(found.lines)) == (total, min(50, total - found.first + 1))
        # A few blocks for each step of the binary search.
        assert log.bytes_read < 64 << 20
    log.bytes_read = 0
    assert merged.tail(log_attempts, 5 << 20)
    assert log.bytes_read < 12 << 20
