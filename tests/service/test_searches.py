"""Searches are refused at creation if the libraries are missing."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from turnout.errors import Unsupported
from turnout.job import Measurement, NewJob, Program, Role, Search, Spec
from turnout.job.search import Algorithm, Metric, Parameter
from turnout.service import Searches
from turnout.service.searches import MOST_SHOWN
from turnout.store import Batch, Store


class WithoutLibraries:
    def missing(self) -> list[str]:
        return ["optuna", "sklearn"]


def job(search: Search | None) -> NewJob:
    return NewJob(
        "p", "tia", "", "j", "j", "here", Spec((Role("master", Program(("true",))),), search=search), b""
    )


def test_the_libraries_have_to_be_there_for_a_search():
    searches = Searches(cast("Any", None), cast("Any", None), cast("Any", WithoutLibraries()))
    searches.check(job(None))
    search = Search((Parameter("x", "float", 0, 1),), (Metric("score"),), (Algorithm("random"),))
    with pytest.raises(Unsupported, match=r"optuna, sklearn on the server: install Turnout there"):
        searches.check(job(search))


async def test_the_measurements_of_many_trials_are_read_in_pieces_beside_the_loop(tmp_path: Path):
    store = Store.open("", tmp_path / "db")
    try:
        searches = Searches(store, cast("Any", None), cast("Any", WithoutLibraries()))
        view = cast("Any", SimpleNamespace(job=SimpleNamespace(id=7, project="p")))
        metric = Metric("score")
        searches._metric = AsyncMock(return_value=metric)  # pyright: ignore[reportPrivateUsage]
        for number in range(30):
            found = [
                Measurement(7, number, step, step, {"score": -abs(step - 411.0)}) for step in range(1000)
            ]
            await store.commit(Batch(measurements=found))
        reads: list[tuple[int, int]] = []
        read = store.trials.read_measurements

        def noted(found: Any) -> list[Measurement]:
            reads.append((threading.get_ident(), len(found)))
            return read(found)

        store.trials.read_measurements = noted
        shown = await searches.all_measurements(view)
        assert {count for _, count in reads} == {1000}
        assert threading.get_ident() not in {thread for thread, _ in reads}
        assert sorted(shown) == list(range(30))
        assert sum(map(len, shown.values())) <= 11 * MOST_SHOWN
        for found in shown.values():
            steps = [one.step for one in found]
            assert steps[0] == 0
            assert steps[-1] == 999
            assert 411 in steps, "the best"
    finally:
        await store.close()
