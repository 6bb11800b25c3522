"""Searches with real processes: points, trials and results."""

import asyncio

import pytest
from msgspec.structs import replace

from tests.search.harness import ME, PATIENCE, Harness, along_x, over, until
from tests.search.in_process import run
from turnout.errors import NotFound, WrongState
from turnout.job import Compare, EventKind, Page, Reason, State, TrialState
from turnout.job.search import Algorithm, Metric, Parameter, Stopping

GO = until("go")


async def test_a_search_tries_as_many_points_as_it_may_and_names_the_best(harness: Harness) -> None:
    async with harness.service() as here:
        job = await here.create(harness.search('echo "score: $x"', along_x(trials=6)))
        view = await here.ended(job.id)
        trials = await here.searches.trials(view)
        assert view.job.state is State.SUCCEEDED, view.job.message
        assert [(one.number, one.state) for one in trials] == [(n, TrialState.SUCCEEDED) for n in range(6)]
        assert [one.value for one in trials] == [one.parameters["x"] for one in trials]
        best = max(trials, key=lambda one: one.value or 0)
        assert view.job.message.startswith(f"best trial {best.display_name} of 6: score=")
        assert all(one.started and one.ended and one.started <= one.ended for one in trials)
        assert view.job.started == min(one.started or 0 for one in trials)
        children = await here.jobs.find(ME, Compare("scope", "=", f"trial:{job.id}"), Page(limit=10))
        assert {child.job.id for child in children} == {one.child for one in trials}
        assert {child.job.state for child in children} == {State.SUCCEEDED}
        assert (await here.searches.trial(view, best.id)) == best
        with pytest.raises(NotFound):
            await here.searches.trial(view, "00000000")


async def test_one_at_a_time_the_points_are_the_library_s_own(harness: Harness) -> None:
    search = replace(
        along_x(trials=8, wide=1), algorithms=(Algorithm("tpe_search", {"num_samples": 8, "seed": 3}),)
    )
    async with harness.service() as here:
        job = await here.create(harness.search('echo "score: $x"', search))
        view = await here.ended(job.id)
        points = [one.parameters for one in await here.searches.trials(view)]
    assert points == run(search, lambda point: float(point["x"]), 8)


async def test_metrics_are_stored_by_step(harness: Harness) -> None:
    script = """
    echo "loss: 3 score: 0.1"; echo "score: 0.2 and score: 0.3"; echo "noise score: much"
    echo "x TURNOUT_METRIC score=0.5 loss=1 step=10"; echo "TURNOUT_METRIC score=0.4 step=11"
    """
    metrics = (Metric("score", "max", r"score: (\S+)"), Metric("loss", "min", r"loss: (\d)"))
    async with harness.service() as here:
        job = await here.create(harness.search(script, replace(along_x(trials=1), metrics=metrics)))
        view = await here.ended(job.id)
        (trial,) = await here.searches.trials(view)
        found = await here.searches.measurements(view, 0)
    assert {one.step: one.metrics for one in found} == {
        1: {"loss": 3.0, "score": 0.1}, 2: {"score": 0.3}, 10: {"score": 0.5, "loss": 1.0}, 11: {"score": 0.4}
    }  # fmt: skip
    assert (trial.value, trial.metrics) == (0.4, {"score": 0.4, "loss": 1.0})


async def test_the_best_measurement_counts_if_requested(harness: Harness) -> None:
    script = "for s in 0.1 0.9 0.3; do echo score: $s; done"
    async with harness.service() as here:
        job = await here.create(harness.search(script, along_x(trials=1, measurement="best")))
        view = await here.ended(job.id)
        assert [one.value for one in await here.searches.trials(view)] == [0.9]


async def test_reports_by_cloudml_hypertune_s_file(harness: Harness) -> None:
    script = """
    echo '{"timestamp": 1.5, "trial": "1", "score": "0.25", "global_step": "100"}' > $FILE
    echo 'rubbish' >> $FILE
    echo '{"timestamp": 2.5, "trial": "1", "score": "0.75", "global_step": "200"}' >> $FILE
    """
    async with harness.service() as here:
        job = await here.create(harness.search(script, along_x(trials=2)))
        view = await here.ended(job.id)
        assert [one.value for one in await here.searches.trials(view)] == [0.75, 0.75]
        found = await here.searches.measurements(view, 1)
        assert [(one.step, one.at, one.metrics["score"]) for one in found] == [
            (100, 1_500_000_000, 0.25),
            (200, 2_500_000_000, 0.75),
        ]


async def test_measurements_can_be_seen_while_a_trial_runs(harness: Harness) -> None:
    script = f"echo score: 0.5; {GO} echo score: 0.75"
    async with harness.service() as here:
        job = await here.create(harness.search(script, along_x(trials=1)))
        view = await here.until(job.id, lambda job: job.state is State.RUNNING)
        (trial,) = await here.trials_until(view, lambda trials: trials[0].state is TrialState.ACTIVE)
        assert trial.value is None
        async with asyncio.timeout(PATIENCE):
            # No event announces a measurement.
            while not (found := await here.searches.measurements(view, 0)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert [one.metrics for one in found] == [{"score": 0.5}]
        (harness.shared / "go").touch()
        view = await here.ended(job.id)
        assert [one.value for one in await here.searches.trials(view)] == [0.75]


async def test_failed_trials_do_not_fail_the_search(harness: Harness) -> None:
    script = 'if [ $((TRIAL % 2)) = 1 ]; then echo oh; exit 3; fi; echo "score: $x"'
    async with harness.service() as here:
        view = await here.ended((await here.create(harness.search(script, along_x(trials=6)))).id)
        trials = await here.searches.trials(view)
        assert view.job.state is State.SUCCEEDED
        assert [one.state for one in trials[:2]] == [TrialState.SUCCEEDED, TrialState.INFEASIBLE]
        assert trials[1].message == "master-0 exited with code 3; last line of its log: oh"
        notes = [one.message for one in await here.jobs.events(view) if one.kind is EventKind.NOTE]
        assert f"trial {trials[1].display_name}: {trials[1].message}" in notes


@pytest.mark.parametrize(("most", "made"), [(3, 3), (0, 10)])
async def test_too_many_failed_trials_fail_the_search(harness: Harness, most: int, made: int) -> None:
    async with harness.service() as here:
        search = along_x(trials=30, wide=1, max_failed=most)
        view = await here.ended((await here.create(harness.search("exit 3", search))).id)
        assert (view.job.state, view.job.reason) == (State.FAILED, Reason.PROGRAM_FAILED)
        assert "exited with code 3" in view.job.message
        assert len(await here.searches.trials(view)) == made


@pytest.mark.parametrize(
    ("script", "message"),
    [("true", "it ended without a value of score"), ("echo score: nan", "its last score is nan")],
)
async def test_a_trial_without_a_valid_metric_is_infeasible(
    harness: Harness, script: str, message: str
) -> None:
    async with harness.service() as here:
        view = await here.ended((await here.create(harness.search(script, along_x(trials=1)))).id)
        (trial,) = await here.searches.trials(view)
        assert trial.state is TrialState.INFEASIBLE
        assert message in trial.message
        assert (view.job.state, trial.message in view.job.message) == (State.FAILED, True)


async def test_no_more_trials_run_at_a_time_than_fit(harness: Harness) -> None:
    script = f'echo "score: $x"; {GO}'
    async with harness.service(overcommit=0.0001) as here:
        job = await here.create(harness.search(script, along_x(trials=4, wide=4)))
        view = await here.until(job.id, lambda job: job.state is State.RUNNING)
        trials = await here.trials_until(view, lambda trials: len(trials) == 2)
        assert [one.state for one in trials] == [TrialState.ACTIVE, TrialState.REQUESTED]
        (harness.shared / "go").touch()
        await here.ended(job.id)
        assert len(await here.searches.trials(view)) == 4


async def test_stopping_a_search_stops_its_trials_and_keeps_their_metrics(harness: Harness) -> None:
    script = f'echo "score: $x"; {GO}'
    async with harness.service() as here:
        job = await here.create(harness.search(script, along_x(trials=9)))
        view = await here.until(job.id, lambda job: job.state is State.RUNNING)
        await here.trials_until(view, lambda trials: len(trials) == 2 and all(t.started for t in trials))
        await here.jobs.stop(ME, job.id)
        view = await here.ended(job.id)
        trials = await here.searches.trials(view)
        assert (view.job.state, view.job.reason) == (State.STOPPED, Reason.STOPPED)
        assert len(trials) == 2
        for trial in trials:
            child = await here.jobs.by_id(ME, trial.child)
            assert child.job.state is State.STOPPED
        assert view.job.message.startswith("stopped by alice")


async def test_one_trial_can_be_stopped(harness: Harness) -> None:
    script = f'echo "score: $x"; if [ $TRIAL = 0 ]; then {GO} fi'
    async with harness.service() as here:
        job = await here.create(harness.search(script, along_x(trials=3)))
        view = await here.until(job.id, lambda job: job.state is State.RUNNING)
        trials = await here.trials_until(view, lambda trials: len(over(trials)) == 2)
        stopped = await here.searches.stop_trial(ME, view, trials[0].id)
        assert stopped.state is TrialState.STOPPING
        view = await here.ended(job.id)
        first = (await here.searches.trials(view))[0]
        assert view.job.state is State.SUCCEEDED
        assert (first.state, first.value, first.message) == (
            TrialState.SUCCEEDED,
            first.parameters["x"],
            "stopped by alice",
        )
        with pytest.raises(WrongState):
            await here.searches.stop_trial(ME, view, first.id)


async def test_a_trial_that_does_badly_is_stopped_early(harness: Harness) -> None:
    script = f"""
    good=$(if [ $TRIAL -lt 5 ]; then echo 1; else echo 0; fi)
    for step in 1 2 3; do echo "TURNOUT_METRIC score=$good step=$step"; done
    if [ $TRIAL = 5 ]; then {GO} fi
    """
    search = along_x(trials=6, wide=1, stopping=Stopping("median"))
    async with harness.service() as here:
        view = await here.ended((await here.create(harness.search(script, search))).id)
        last = (await here.searches.trials(view))[5]
        assert (last.state, last.value) == (TrialState.SUCCEEDED, 0)
        assert last.message.startswith("stopped early")


async def test_a_search_has_a_time_limit_of_its_own(harness: Harness) -> None:
    async with harness.service() as here:
        job = await here.create(harness.search(GO, along_x(trials=9), time_limit=0.3))
        view = await here.ended(job.id)
        assert (view.job.state, view.job.reason) == (State.FAILED, Reason.TIME_LIMIT)
        assert all(one.state is TrialState.INFEASIBLE for one in await here.searches.trials(view))


async def test_deleting_a_search_deletes_its_trials(harness: Harness) -> None:
    async with harness.service() as here:
        done = await here.create(harness.search('echo "score: $x"', along_x(trials=2)))
        view = await here.ended(done.id)
        live = await here.create(harness.search(GO, along_x(trials=2), "other"))
        await here.until(live.id, lambda job: job.state is State.RUNNING)
        children = [one.child for one in await here.searches.trials(view)]
        await here.jobs.delete(ME, done.id)
        await here.jobs.delete(ME, live.id)
        for child in children:
            with pytest.raises(NotFound):
                await here.jobs.by_id(ME, child)
        with here.jobs.watch(live.id) as changed:
            while (job := await here.store.job(live.id)) and job.live:
                await changed.wait()
                changed.clear()
        left = await here.store.find(Compare("deleted", "=", None), Page(limit=10))
        assert left == []


async def test_the_next_service_resumes_a_search(harness: Harness) -> None:
    """Trials that ended meanwhile, and those that still run, are neither lost nor run again."""
    script = f'echo "$TRIAL" >> $SHARED/starts; echo "score: $x"; if [ $TRIAL -ge 3 ]; then {GO} fi'
    async with harness.service() as here:
        job = await here.create(harness.search(script, along_x(trials=7)))
        view = await here.until(job.id, lambda job: job.state is State.RUNNING)
        before = await here.trials_until(view, lambda trials: len(over(trials)) == 3 and len(trials) == 5)
    (harness.shared / "go").touch()
    async with harness.service() as here:
        view = await here.ended(job.id)
        trials = await here.searches.trials(view)
        assert view.job.state is State.SUCCEEDED
        assert over(before) == trials[:3]
        assert [one.parameters for one in before] == [one.parameters for one in trials[:5]]
    assert sorted((harness.shared / "starts").read_text().split()) == [str(number) for number in range(7)]


async def test_a_regular_expression_that_never_ends_hurts_only_its_own_search(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnout.search.study_client.SCAN_SECONDS", 0.5)
    metrics = (Metric("score", "max", r"(a+)+b"),)
    async with harness.service() as here:
        script = "echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        view = await here.ended(
            (await here.create(harness.search(script, replace(along_x(trials=1), metrics=metrics)))).id
        )
        assert view.job.state is State.FAILED


async def test_an_invalid_search_fails_with_a_reason(harness: Harness) -> None:
    search = replace(along_x(), parameters=(Parameter("x", "float", 2, 1),))
    async with harness.service() as here:
        view = await here.ended((await here.create(harness.search("true", search))).id)
        assert (view.job.state, view.job.reason) == (State.FAILED, Reason.REFUSED)
        assert "lower bound of x" in view.job.message


async def test_importance_is_available_while_it_runs_and_afterwards(harness: Harness) -> None:
    async with harness.service() as here:
        view = await here.ended((await here.create(harness.search('echo "score: $x"', along_x(trials=6)))).id)
        assert [name for name, _, _ in await here.searches.importance(view)] == ["x"]
        assert (await here.searches.picture(view, "x")).startswith(b"\x89PNG")
