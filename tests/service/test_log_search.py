"""A search finds the lines that a look at every line would find, but reads over the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.service import test_lines, test_merged
from turnout.job import Job, Replica, ReplicaLog, ReplicaName, State
from turnout.service import JobView, Logs, log_search, logs
from turnout.service.lines import Stream
from turnout.service.log_search import Wanted, skip

MASTER = Replica(7, 1, "master", 0, ended=1 << 40)
VIEW = JobView(
    Job(7, "default", "tia", "", "a", "a", "here", State.FAILED, 0, 1, 1, attempt=1), (MASTER,), b""
)
PIECES = st.binary(max_size=6) | st.sampled_from([b"needle\n", b"NEE", b"dle", b"\n", b"\xc3\xa9", b"x\n"])
WANTED = Wanted(lambda line: "needle" in line.lower(), (b"needle",))


class Printed:
    def __init__(self, log: ReplicaLog) -> None:
        self._log = log

    def log(self, job: Job, attempt: int, replica: ReplicaName) -> ReplicaLog:
        return self._log


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that words lie across pieces, and a page needs several looks."""
    for module, name, size in (
        (log_search, "_PIECE", 7),
        (logs, "_SKIPPED_BYTES", 20),
        (logs, "_SEARCH_BYTES", 5),
    ):
        monkeypatch.setattr(module, name, size)


@given(st.lists(st.tuples(PIECES, PIECES), max_size=30), st.integers(0, 20), st.integers(1, 3))
async def test_it_finds_what_a_look_at_every_line_finds(
    pieces: list[tuple[bytes, bytes]], since: int, limit: int
) -> None:
    found = Logs(Printed(test_merged.Recorded(*pieces)))  # type: ignore[arg-type]
    start = since * test_merged.MILLISECOND
    whole = await found.query(VIEW, start=start, limit=1000)
    lines, cursor, over = list[str](), "", False
    while not over:
        page = await found.search(VIEW, WANTED, start=start, limit=limit, cursor=cursor)
        lines += [line.text for line in page.lines]
        cursor, over = page.cursor, page.over
    assert lines == [line.text for line in whole.lines if WANTED.matches(line.text)]


def test_it_goes_on_behind_a_hole() -> None:
    log = test_lines.Recorded(b"a\nb\n" + b"needle" * 5 + b"\nc\nneedle\nd\n", hole=(4, 20))
    stream = Stream(log, 0, 1 << 40)
    place = skip(stream, 0, 0, (b"needle",), 1000)
    assert next(stream.lines(place)).text == b"needle"


def test_what_it_skips_is_not_looked_at_line_by_line() -> None:
    log = test_lines.Recorded(b"line\n" * 10_000 + b"needle\n")
    stream = Stream(log, 0, 1 << 40)
    assert skip(stream, 0, 0, (b"needle",), 1 << 20) == 50_000
    assert skip(stream, 0, 0, (b"needle",), 1002) == 1000
    assert skip(stream, 0, 0, (b"other",), 1 << 20) == len(log.data)
