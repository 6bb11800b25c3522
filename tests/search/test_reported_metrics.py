"""Programs that report very much or no numbers, and regular expressions that are slow or match nothing."""

import asyncio
import math

import pytest
from msgspec.structs import replace

from tests.search.harness import PATIENCE, Harness, along_x, outcome, until
from turnout.job import State, TrialState
from turnout.job.search import Metric, Stopping

MANY = 100_000


@pytest.mark.slow
async def test_a_hundred_thousand_measurements(harness: Harness) -> None:
    script = f"awk 'BEGIN {{ for (i = 1; i <= {MANY}; i++) print \"score: \" i / {MANY} }}'"
    search = along_x(trials=2, wide=2, stopping=Stopping("median", startup=1))
    async with harness.service() as here:
        view, trials = await outcome(here, harness.search(script, search))
        assert [one.value for one in trials] == [1, 1]
        found = await here.searches.measurements(view, 1)
        steps = [one.step for one in found]
        assert (steps[0], steps[-1]) == (1, MANY)
        assert 500 <= len(steps) <= 1000
        assert steps == sorted(steps)


@pytest.mark.slow
async def test_all_measurements_are_read_while_it_runs(harness: Harness) -> None:
    """Also a measurement after more lines than one read takes, with no line after it."""
    script = f"seq 60000; echo score: 0.5; {until('go')}"
    async with harness.service() as here:
        job = await here.create(harness.search(script, along_x(trials=1)))
        view = await here.until(job.id, lambda job: job.state is State.RUNNING)
        async with asyncio.timeout(PATIENCE):
            # No event announces a measurement.
            while not await here.searches.measurements(view, 0):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        (harness.shared / "go").touch()
        await here.ended(job.id)


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("head -c 1000000 /dev/zero | tr '\\0' x; echo; echo score: 0.5", 0.5),
        ("head -c 1000000 /dev/zero | tr '\\0' x; echo score: 0.5", None),
        ("printf 'TURNOUT_METRIC score=0.5 '; seq -f 'm%g=1' -s ' ' 100000", 0.5),
        ("printf 'TURNOUT_METRIC score='; head -c 1000000 /dev/zero | tr '\\0' 1; echo", math.inf),
        ("echo score: 0.5; echo score: 1e999", math.inf),
        ("echo score: -inf; echo score: nan; echo score: 0.5", 0.5),
        ("echo TURNOUT_METRIC score=0.5 step=99999999999999999999999", 0.5),
        ("echo TURNOUT_METRIC score=0.5 step=-1; echo TURNOUT_METRIC score=", 0.5),
        (r"printf 'score: 0.5\nscore: \377\376\000\n'", 0.5),
    ],
)
async def test_reports_without_a_finite_number(harness: Harness, said: str, value: float | None) -> None:
    """NaN and infinity are stored, but a trial does not succeed with them."""
    async with harness.service() as here:
        view, (trial,) = await outcome(here, harness.search(said, along_x(trials=1)))
        if value is None or math.isinf(value):
            assert (trial.state, trial.value) == (TrialState.INFEASIBLE, None)
            assert trial.message in view.job.message
            assert len(view.job.message) < 1000
            assert trial.metrics.get("score") == value
        else:
            assert (trial.state, trial.value) == (TrialState.SUCCEEDED, value)


@pytest.mark.parametrize(
    ("regex", "value"),
    [(r"(?<=score )\S+", 0.5), (r"score (\d.\d)|nothing", 0.5), (r"score (x)?", None), (r"()", None)],
)
async def test_expressions_of_all_kinds(harness: Harness, regex: str, value: float | None) -> None:
    search = replace(along_x(trials=1), metrics=(Metric("score", "max", regex),))
    async with harness.service() as here:
        _, (trial,) = await outcome(here, harness.search("echo score 0.5", search))
        assert trial.value == value


@pytest.mark.slow
async def test_an_expression_that_never_ends_is_tried_once_and_named(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports in other forms are still read."""
    monkeypatch.setattr("turnout.search.study_client.SCAN_SECONDS", 0.5)
    endless = "echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; "
    script = f"for i in $(seq 50); do {endless} sleep 0.05; done; "
    script += 'if [ "$TRIAL" = 0 ]; then echo TURNOUT_METRIC score=0.5; fi'
    search = replace(along_x(trials=2, wide=1), metrics=(Metric("score", "max", "(a+)+b"),))
    async with harness.service() as here:
        view, trials = await outcome(here, harness.search(script, search))
        assert view.job.state is State.SUCCEEDED, view.job
        assert trials[0].value == 0.5
        assert "took more than 0.5 seconds" in trials[1].message
