"""Jobs survive engines, networks, clocks and databases that do their worst. The steps are in `adversary/steps.py`."""

import asyncio
from pathlib import Path

import pytest

from tests.control.adversary.history import history_of, problem_of, run, shortest
from tests.control.adversary.records import Records
from turnout.store import Batch, Store

STEPS = 100
KEPT = {
    "an attempt that counted as lost comes back while the next one starts": [
        *(67749, 74863, 982713, 685916, 791155, 855623, 957504, 156602, 241868),
        *(408151, 615068, 544149, 510655, 404431, 489895, 151870, 357938, 169104),
    ],
    "a lost attempt is forgotten while it runs": [
        *(864878, 963204, 575443, 376100, 917672, 568405, 518138, 685641),
    ],
    "one of a forgotten gang ends while the others run": [
        *(568143, 387240, 834628, 382106, 816170, 953197, 782729, 921144),
    ],
    "a replica that was restarted runs on when its job has ended": [
        *(219166, 774233, 155833, 154206, 77256, 570040, 441417, 82124, 919746, 227675),
    ],
    "an engine starts a gang and says that it failed to": [714338, 533795, 570610, 466463, 526455, 281270],
    "the clock of an engine is ahead": [750620, 767085, 976956, 454098, 912201, 613595, 816555],
    "a gang is lost before its lead started, but not before a worker was restarted": [
        *(375640, 609551, 45321, 649758, 927972, 922182, 771029, 878113, 96472, 868731),
    ],
    "a commit is on disk, but the connection breaks before the answer": [
        168749,
        648690,
        423049,
        610171,
        231541,
    ],
    "an outbox ignores that it is cancelled": [
        *(793381, 84376, 523487, 964207, 823142, 438149, 466357),
        *(933441, 858428, 680667, 454060, 694726, 303792),
    ],
    "a stop is dropped while the start is under way": [
        *(615799, 928846, 344493, 438920, 141247, 966281, 873375, 599907, 548879),
    ],
    "a replica that is restarted has a new start time": [
        *(151840, 833921, 540733, 795381, 646067, 658569, 529276, 583915),
    ],
}
"""Histories in which something went wrong once. A new or changed rule gives their numbers another meaning."""


def check(seed: int) -> None:
    """Fails with the shortest history that fails in the same way."""
    history = history_of(seed, STEPS)
    if problem_of(history):
        run(shortest(history))
        raise AssertionError(f"seed {seed} fails only as a whole: {problem_of(history)}")


@pytest.mark.parametrize("history", KEPT.values(), ids=KEPT.keys())
def test_what_went_wrong_once(history: list[int]) -> None:
    run(history)


def test_a_few_histories() -> None:
    for seed in range(200):
        check(seed)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_histories() -> None:
    for seed in range(200, 2200):
        check(seed)


@pytest.mark.parametrize("seed", range(5))
def test_the_store_in_memory_is_like_the_real_one(tmp_path: Path, seed: int) -> None:
    """After every commit of a history, both have the same live jobs."""
    asyncio.run(compare(tmp_path, run(history_of(seed, STEPS)).records.batches))


async def compare(tmp_path: Path, batches: list[Batch]) -> None:
    store, model = Store.open("", tmp_path / "turnout.db"), Records()
    try:
        for batch in batches:
            await store.commit(batch)
            model.write(batch)
            assert await store.live() == model.live_records()
    finally:
        await store.close()
