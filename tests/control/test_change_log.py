"""The log of changes: readers continue where they were, or learn that they missed some."""

import asyncio

from turnout.control.change_log import ChangeLog


def test_each_job_is_there_once_with_its_last_change() -> None:
    log = ChangeLog()
    log.add([7, 8, 7])
    assert log.since(0, 10) == [(2, 8), (3, 7)]
    assert log.since(2, 10) == [(3, 7)]
    assert log.since(3, 10) == []
    assert log.since(0, 1) == [(2, 8)]


def test_a_reader_learns_that_changes_are_not_remembered() -> None:
    log = ChangeLog(most=2)
    log.add([1, 2, 3])
    assert log.since(0, 10) is None
    assert log.since(1, 10) == [(2, 2), (3, 3)]
    assert log.since(9, 10) is None  # the number is of no change yet


async def test_a_change_wakes_all_readers_and_so_does_the_end() -> None:
    log = ChangeLog()
    readers = [asyncio.create_task(log.wait(0)) for _ in range(3)]
    await asyncio.sleep(0)
    log.add([1])
    await asyncio.gather(*readers)
    last = asyncio.create_task(log.wait(1))
    await asyncio.sleep(0)
    assert not last.done()
    log.close()
    await last
