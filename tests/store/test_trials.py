"""Trials and what they measured, in either database."""

import math
from typing import Any

from tests.store.samples import creation, job
from turnout.job import Measurement, Trial, TrialState
from turnout.store import Batch, Store


def trial(search: int, number: int, **fields: Any) -> Trial:
    return Trial(
        search, number, f"{number:08x}", 0, {"x": 0.5, "kind": "a", "on": True}, number + 7, 1, **fields
    )


async def test_a_trial_and_its_job_are_there_together_or_not_at_all(store: Store) -> None:
    search, child = job("search"), job("child")
    batch = creation(search, child)
    batch.new_trials.append(trial(search.id, 0))
    await store.commit(batch)
    assert await store.trials.of(search.id) == [trial(search.id, 0)]
    assert await store.trials.of(child.id) == []
    live = {one.job.id: one.trials for one in await store.live()}
    assert live == {search.id: (trial(search.id, 0),), child.id: ()}


async def test_what_became_of_a_trial(store: Store) -> None:
    search = job("search")
    batch = creation(search)
    batch.new_trials += [trial(search.id, 0), trial(search.id, 1)]
    await store.commit(batch)
    done = trial(
        search.id,
        1,
        state=TrialState.SUCCEEDED,
        value=2.5,
        metrics={"y": 2.5},
        started=3,
        ended=4,
        message="m",
    )
    await store.commit(Batch(trials=[done]))
    assert await store.trials.of(search.id) == [trial(search.id, 0), done]
    assert [one.trials for one in await store.live()] == [(trial(search.id, 0),)]


async def test_a_step_that_is_measured_again_takes_the_place_of_the_first(store: Store) -> None:
    search = job("search")
    batch = creation(search)
    batch.new_trials += [trial(search.id, 0), trial(search.id, 1)]
    await store.commit(batch)
    first, again = Measurement(search.id, 0, 1, 10, {"y": 1.0}), Measurement(search.id, 0, 1, 20, {"y": 2.0})
    other = Measurement(search.id, 1, 5, 30, {"y": math.inf})
    assert await store.trials.cursor(search.id, 0) == b""
    await store.trials.measured(search.id, 0, [first], b"here")
    await store.commit(Batch(measurements=[again, other]))
    assert await store.trials.cursor(search.id, 0) == b"here"
    assert await store.trials.measurements(search.id, 0) == [again]
    assert await store.trials.measurements(search.id) == [again, other]
