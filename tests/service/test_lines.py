"""Lines from raw streams and marks."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.job import Mark
from turnout.service import lines
from turnout.service.lines import RawLine, Stream

MILLISECOND = 1_000_000


class Recorded:
    """A replica's log in memory: chunks of stdout with a mark after each."""

    def __init__(self, *chunks: bytes, hole: tuple[int, int] | None = None) -> None:
        self.data = b"".join(chunks)
        self._hole = hole
        self._marks: list[Mark] = []
        size = 0
        for number, chunk in enumerate(chunks, 1):
            size += len(chunk)
            self._marks.append(Mark(number * MILLISECOND, size, 0))

    def size(self, stream: int) -> int:
        return 0 if stream else len(self.data)

    def read(self, stream: int, offset: int, count: int) -> bytes:
        end = offset + count
        if self._hole and offset < self._hole[0] < end:
            end = self._hole[0]
        return b"" if stream else self.data[offset:end]

    def hole(self, stream: int) -> tuple[int, int] | None:
        return self._hole

    def marks(self, first: int = 0, count: int | None = None) -> list[Mark]:
        return self._marks[first : None if count is None else first + count]

    def mark_count(self) -> int:
        return len(self._marks)


def texts(log: Recorded, ended: int | None = None, **where: int) -> list[bytes]:
    return [line.text for line in Stream(log, 0, ended).lines(**where)]


def test_a_line_has_the_time_of_the_first_mark_that_covers_its_end() -> None:
    log = Recorded(b"one\ntwo\nthr", b"ee\n")
    assert list(Stream(log, 0, None).lines()) == [
        RawLine(1 * MILLISECOND + 3, 0, 4, b"one"),
        RawLine(1 * MILLISECOND + 7, 4, 8, b"two"),
        RawLine(2 * MILLISECOND + 2, 8, 14, b"three"),
    ]


def test_a_line_without_an_end_appears_when_the_replica_has_ended() -> None:
    log = Recorded(b"one\ntw", b"o")
    assert texts(log) == [b"one"]
    assert texts(log, ended=9 * MILLISECOND) == [b"one", b"two"]


def test_a_line_waits_for_a_mark_that_covers_it() -> None:
    log = Recorded(b"one\n")
    log.data += b"two\n"
    assert texts(log) == [b"one"]
    assert texts(log, ended=9 * MILLISECOND) == [b"one", b"two"]


def test_nothing_printed() -> None:
    assert texts(Recorded()) == []
    assert texts(Recorded(), ended=5) == []


def test_one_endless_line_is_cut() -> None:
    mib = 1 << 20
    log = Recorded(b"x" * (2 * mib + 10))
    assert [len(text) for text in texts(log, ended=1)] == [mib, mib, 10]
    assert [len(text) for text in texts(log, ended=1, offset=mib)] == [mib, 10]


def test_a_hole_is_skipped_with_the_lines_that_it_cuts() -> None:
    log = Recorded(b"first\nsecond\n" + b"\0" * 100 + b"cut\nlast\n", hole=(9, 113))
    assert texts(log, ended=1) == [b"first", b"last"]


chunks = st.lists(st.binary(max_size=30).map(lambda raw: raw.replace(b"a", b"\n")), max_size=8)


@given(chunks=chunks, data=st.data())
def test_reading_on_from_any_line_gives_exactly_the_rest(chunks: list[bytes], data: st.DataObject) -> None:
    log = Recorded(*chunks)
    everything = list(Stream(log, 0, 99 * MILLISECOND).lines())
    assert b"\n".join(line.text for line in everything) == log.data.removesuffix(b"\n") or not log.data
    assert [line.at for line in everything] == sorted(line.at for line in everything)
    if everything:
        line = data.draw(st.sampled_from(everything))
        assert list(Stream(log, 0, 99 * MILLISECOND).lines(offset=line.end)) == [
            other for other in everything if other.start >= line.end
        ]
        assert list(Stream(log, 0, 99 * MILLISECOND).lines(since=line.at)) == [
            other for other in everything if other.at >= line.at
        ]


@contextmanager
def small_blocks() -> Iterator[None]:
    """Small limits, so that short texts cover all cases."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lines, "_CHUNK", 4)
        patched.setattr(lines, "_LONGEST", 8)
        yield


def test_lines_back_over_a_hole() -> None:
    log = Recorded(b"first\nsecond\n" + b"\0" * 100 + b"cut\nlast\n", hole=(9, 113))
    assert [line.text for line in Stream(log, 0, 1).lines_back()] == [b"last", b"first"]


@given(chunks=chunks, ended=st.sampled_from([None, 99 * MILLISECOND]), hole=st.booleans(), data=st.data())
def test_lines_back_are_the_lines_in_reverse(
    chunks: list[bytes], ended: int | None, hole: bool, data: st.DataObject
) -> None:
    with small_blocks():
        length = sum(map(len, chunks))
        missing = sorted(data.draw(st.tuples(st.integers(0, length), st.integers(0, length)))) if hole else []
        log = Recorded(
            *chunks, hole=(missing[0], missing[1]) if missing and missing[0] < missing[1] else None
        )
        everything = list(Stream(log, 0, ended).lines())
        assert list(Stream(log, 0, ended).lines_back()) == everything[::-1]
        if everything:
            line = data.draw(st.sampled_from(everything))
            assert list(Stream(log, 0, ended).lines_back(until=line.at)) == [
                other for other in everything[::-1] if other.at <= line.at
            ]
            assert list(Stream(log, 0, ended).lines_back(line.start)) == [
                other for other in everything[::-1] if other.end <= line.start
            ]
