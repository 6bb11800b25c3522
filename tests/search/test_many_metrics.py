"""A program that reports very many measurements: a sample is kept, and the result is exact."""

import asyncio
import itertools
import json
import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tests.search.harness import Harness, RunningService, along_x, outcome, until
from turnout.job import Measurement, Search
from turnout.job.search import Metric, Stopping
from turnout.search.curve import Curve
from turnout.search.metrics import MetricReport, TrialMetrics
from turnout.search.stopping import should_stop
from turnout.search.suggester import KnownTrial
from turnout.service.searches import thinned

MANY = 40_000
PEAK = 12_345
POINTS = 100
SEARCH = along_x(trials=1, measurement="best")


class Kept:
    """TrialMetrics with a dictionary as the store."""

    def __init__(self, search: Search = SEARCH, names: int = 100) -> None:
        self._search, self._names = search, names
        self.stored: dict[int, Measurement] = {}
        self.most = 0
        self.restart()

    def restart(self) -> None:
        known = sorted(self.stored.values(), key=lambda one: one.at)
        self.metrics = TrialMetrics(self._search, 1, 0, known, points=POINTS, names=self._names)

    def add(self, at: int, metrics: dict[str, float], step: int | None = None) -> None:
        self.metrics.add(MetricReport(at, metrics, step))
        if at % 1000 == 0:
            self.write()

    def write(self) -> None:
        self.stored |= {one.step: one for one in self.metrics.take_new()}
        for step in self.metrics.take_dropped(1000):
            del self.stored[step]
        self.most = max(self.most, len(self.stored))


def score(number: int) -> dict[str, float]:
    return {"score": 2.0 if number == PEAK else number / MANY}


@pytest.mark.parametrize("measurement", ["best", "last"])
@pytest.mark.parametrize("restarts", [(), (PEAK + 543, 30_000), tuple(range(1000, MANY, 3000))])
def test_few_are_kept_with_the_first_the_last_and_the_best(
    measurement: str, restarts: tuple[int, ...]
) -> None:
    kept = Kept(replace(SEARCH, measurement=measurement))
    for number in range(1, MANY + 1):
        kept.add(number, score(number))
        if number in restarts:
            kept.write()
            kept.restart()
    assert {1, PEAK, MANY} <= kept.stored.keys()
    assert kept.most < 5 * POINTS
    assert kept.metrics.outcome()[0] == (2.0 if measurement == "best" else 1.0)
    steps = sorted(kept.stored)
    assert max(b - a for a, b in itertools.pairwise(steps)) <= 4 * MANY // POINTS


@pytest.mark.parametrize(
    "step",
    [
        lambda n: n * 1000,
        lambda n: 1_790_000_000_000_000_000 + n * 1_000_003,
        lambda n: (1 << 62) - n,
        lambda n: random.Random(n).randrange(1 << 63),
        lambda n: n if n != 20 else (1 << 63) - 1,
    ],
    ids=["thousands", "nanoseconds", "backwards", "random", "outlier"],
)
def test_whatever_their_steps_are(step: Callable[[int], int]) -> None:
    kept = Kept()
    for number in range(1, MANY // 4 + 1):
        kept.add(number, score(number), step(number))
    assert POINTS / 4 < len(kept.stored) <= kept.most < 12 * POINTS


def test_a_metric_that_is_rare_has_a_sample_of_its_own() -> None:
    kept = Kept()
    for number in range(1, MANY + 1):
        kept.add(number, score(number) | ({"rare": number / 7} if number % 101 == 0 else {}))
    rare = [one for one in kept.stored.values() if "rare" in one.metrics]
    assert POINTS / 2 <= len(rare) <= 2 * POINTS
    assert {101, MANY // 101 * 101} <= {one.step for one in rare}


def test_all_metrics_together_are_bounded() -> None:
    """Each metric is reported on lines of its own."""
    kept = Kept(names=50)
    for number in range(1, MANY + 1):
        kept.add(number, {f"m{number % 200}": 1.0}, number)
    assert kept.most < 4 * POINTS + 3 * 50 + 1000
    kept.write()
    assert len(kept.stored) <= 4 * POINTS + 3 * 51
    assert len({name for one in kept.stored.values() for name in one.metrics}) == 50


@pytest.mark.parametrize("kind", ["median", "decay_curve"])
@pytest.mark.parametrize("at", [3, 77, 1021, 30_000])
def test_early_stopping_goes_by_all_values_that_came(kind: str, at: int) -> None:
    """The curve of a trial with many reports is precise at its beginning too, and the best value is exact."""
    search = replace(SEARCH, metrics=(Metric("score", "max"),), stopping=Stopping(kind, startup=1))  # type: ignore[arg-type]

    def curve(number: int, length: int, shift: float, peak: int = 0) -> Curve:
        found = Curve(search)
        for step in range(1, length + 1):
            value = 1 - 1 / step**0.25 + shift + (2 if step == peak else 0)
            found.add(Measurement(1, number, step, step, {"score": value}))
        return found

    def stops(mine: Curve) -> bool:
        curves = {0: curve(0, MANY, 0), 1: mine}
        seen = {0: KnownTrial(0, {}, 1.0, done=True), 1: KnownTrial(1, {})}
        measured = {number: [*one.points, *one.best_and_last()] for number, one in curves.items()}
        return should_stop(search, 1, measured, seen)

    worse, better = curve(1, at, -0.01), curve(1, at, 0.01)
    assert len(worse.points) < 5000
    assert not stops(better)
    if kind == "median":
        assert stops(worse)
        assert not stops(curve(1, at, -0.01, peak=max(1, at - 1)))
    elif at > 50:
        assert stops(worse)


def test_the_best_is_shown() -> None:
    found = [Measurement(1, 0, step, step, score(step)) for step in range(PEAK - 500, PEAK + 5000)]
    shown = thinned(found, 10, SEARCH.metric)
    assert PEAK in {one.step for one in shown}
    assert (shown[0], shown[-1]) == (found[0], found[-1])
    assert len(shown) <= 11


async def test_the_best_outlives_the_service(harness: Harness) -> None:
    """It was reported long before the end, among many others, and the service has restarted since."""
    search = replace(SEARCH, metrics=(Metric("score", "max"),))
    script = (
        "seq 3000 | sed 's/^/TURNOUT_METRIC score=0./'; echo TURNOUT_METRIC score=7; "
        f"seq 3000 | sed 's/^/TURNOUT_METRIC score=0./'; {until('go')} echo TURNOUT_METRIC score=0.5"
    )
    async with harness.service() as here:
        job = await here.create(harness.search(script, search))
        await until_measured(here, job.id, 6001)
    async with harness.service() as here:
        (harness.shared / "go").touch()
        view = await here.ended(job.id)
        (trial,) = await here.searches.trials(view)
        shown = await here.searches.measurements(view, 0)
    assert trial.value == 7
    assert [one.step for one in shown if one.metrics["score"] == 7] == [3001]
    assert (shown[0].step, shown[-1].step) == (1, 6002)


async def until_measured(here: RunningService, job_id: int, step: int) -> None:
    """Polls, because no event announces a measurement."""
    async with asyncio.timeout(60):
        while True:
            found = await here.store.trials.measurements(job_id, 0)
            if found and found[-1].step >= step:
                return
            await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_a_million_lines_take_no_more_than_ten_thousand(harness: Harness) -> None:
    sizes: list[int] = []
    memory: list[int] = []
    async with harness.service() as here:
        for count in (10_000, 10_000, 1_000_000):
            script = f"seq {count} | sed 's/^/TURNOUT_METRIC score=/'"
            search = replace(SEARCH, metrics=(Metric("score", "max"),))
            view, (trial,) = await outcome(here, harness.search(script, search, name=f"s{len(sizes)}"))
            assert trial.value == count
            shown = await here.searches.measurements(view, 0)
            sizes.append(len(json.dumps([one.metrics for one in shown])))
            memory.append(resident())
    assert sizes[2] < 3 * sizes[1]
    assert memory[2] - memory[1] < 20_000_000


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
