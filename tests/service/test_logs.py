"""One replica's log, of all attempts."""

import pytest

from tests.service.test_merged import FIRST, SECOND, TEXT
from turnout.errors import NotFound
from turnout.job import Job, Replica, ReplicaLog, ReplicaName, State
from turnout.service import JobView, Logs

MASTER = ReplicaName("master", 0)
VIEW = JobView(
    Job(7, "default", "modelarts", "", "a", "a", "here", State.FAILED, 0, 1, 1, attempt=2),
    (Replica(7, 2, "master", 0, ended=1 << 40),),
    b"",
)


class Printed:
    """Stands in for Jobs, with the output of each attempt."""

    def log(self, job: Job, attempt: int, replica: ReplicaName) -> ReplicaLog:
        return {1: FIRST, 2: SECOND}[attempt]


LOGS = Logs(Printed())  # type: ignore[arg-type]


async def test_its_end_comes_with_the_size_of_the_whole() -> None:
    assert await LOGS.tail(VIEW, MASTER, 11) == (b"three\nfour\n", len(TEXT))
    assert await LOGS.tail(VIEW, MASTER, 1 << 20) == (TEXT, len(TEXT))


async def test_its_lines_have_numbers() -> None:
    assert await LOGS.numbered(VIEW, MASTER, None, 1, descending=True) == (6, [b"four\n"], 6)


async def test_all_of_it() -> None:
    assert b"".join([piece async for piece in LOGS.whole(VIEW, MASTER)]) == TEXT


async def test_a_replica_that_is_not_there() -> None:
    with pytest.raises(NotFound, match="no replica worker-3; there are master-0"):
        await LOGS.tail(VIEW, ReplicaName("worker", 3), 10)
