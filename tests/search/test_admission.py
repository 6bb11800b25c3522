"""Of many equal searches only a few wait for resources; the others follow, and none is forgotten."""

from collections.abc import Hashable

from tests.search.harness import ME, SCORE, Harness, RunningService, along_x, until
from turnout.job import Job, NewJob, State
from turnout.search.admission import Admission

ONE_PLACE = 0.0001
GO = until("go")


class Recorded:
    """An admission that records what it admits."""

    def __init__(self, most: int) -> None:
        self.admitted: list[int] = []
        self.admission = Admission(self._admit, most)

    def _admit(self, job_id: int, kind: Hashable) -> None:
        self.admitted.append(job_id)


def test_the_oldest_follows_when_one_runs_or_ends() -> None:
    recorded = Recorded(2)
    for job_id in range(5):
        recorded.admission.hold(job_id, "kind")
    assert recorded.admitted == [0, 1]
    recorded.admission.leaves(1, "kind")
    assert recorded.admitted == [0, 1, 2]
    recorded.admission.leaves(1, "kind")
    assert recorded.admitted == [0, 1, 2]


def test_one_that_waits_again_takes_a_place_and_is_not_held() -> None:
    recorded = Recorded(1)
    for job_id in range(4):
        recorded.admission.hold(job_id, "kind")
    recorded.admission.leaves(0, "kind")
    recorded.admission.waits(0, "kind")
    assert recorded.admitted == [0, 1]
    recorded.admission.leaves(1, "kind")
    assert recorded.admitted == [0, 1]
    recorded.admission.leaves(0, "kind")
    assert recorded.admitted == [0, 1, 2]


def test_kinds_do_not_wait_for_each_other() -> None:
    recorded = Recorded(1)
    for job_id in range(3):
        recorded.admission.hold(job_id, "low")
    recorded.admission.hold(3, "high")
    recorded.admission.hold(2, "other")
    recorded.admission.hold(2, "other")
    assert recorded.admitted == [0, 3, 2]
    recorded.admission.leaves(0, "low")
    assert recorded.admitted == [0, 3, 2, 1]


def test_one_that_ended_before_its_turn_is_passed_over() -> None:
    recorded = Recorded(1)
    for job_id in range(3):
        recorded.admission.hold(job_id, "kind")
    recorded.admission.drop(1)
    recorded.admission.drop(1)
    recorded.admission.leaves(0, "kind")
    assert recorded.admitted == [0, 2]


async def test_all_searches_run_although_few_may_wait(harness: Harness) -> None:
    harness.most_waiting = 1
    async with harness.service(overcommit=ONE_PLACE) as here:
        jobs = [await here.create(named(harness, SCORE, name)) for name in "abcde"]
        views = [await here.ended(job.id) for job in jobs]
        assert {view.job.state for view in views} == {State.SUCCEEDED}
        assert [len(await here.searches.trials(view)) for view in views] == [2] * 5


async def test_a_held_search_can_be_stopped_and_others_continue_after_a_restart(harness: Harness) -> None:
    harness.most_waiting = 1
    async with harness.service(overcommit=ONE_PLACE) as here:
        first, second, stopped, last = [
            await here.create(named(harness, GO + SCORE, name)) for name in "abcd"
        ]
        await here.until(first.id, lambda job: job.state is State.RUNNING)
        await has_trial(here, second)
        assert not await here.store.trials.of(stopped.id)
        explanation = here.control.explain(stopped.id)
        assert explanation
        assert "at most 100 equal searches of a project wait" in explanation.why[0]
        await here.jobs.stop(ME, stopped.id)
        assert (await here.ended(stopped.id)).job.state is State.STOPPED
    async with harness.service(overcommit=ONE_PLACE) as here:
        assert not await here.store.trials.of(last.id)
        (harness.shared / "go").touch()
        for job in (first, second, last):
            view = await here.ended(job.id)
            assert view.job.state is State.SUCCEEDED, view.job
            assert len(await here.searches.trials(view)) == 2


async def test_a_higher_priority_lets_a_held_search_start_before_the_others(harness: Harness) -> None:
    harness.most_waiting = 1
    async with harness.service(overcommit=ONE_PLACE) as here:
        jobs = [await here.create(named(harness, GO + SCORE, name)) for name in "abcd"]
        await here.until(jobs[0].id, lambda job: job.state is State.RUNNING)
        await has_trial(here, jobs[1])
        await here.jobs.amend(ME, jobs[3].id, priority=5)
        await has_trial(here, jobs[3])
        assert not await here.store.trials.of(jobs[2].id)
        (harness.shared / "go").touch()
        assert {(await here.ended(job.id)).job.state for job in jobs} == {State.SUCCEEDED}


def named(harness: Harness, script: str, name: str) -> NewJob:
    return harness.search(script, along_x(trials=2, wide=1), name)


async def has_trial(here: RunningService, job: Job) -> None:
    view = await here.jobs.by_id(ME, job.id)
    await here.trials_until(view, bool)
