"""The libraries in a worker process, as the service uses them."""

import asyncio
import os
import signal
import struct
import sys
import time
from collections.abc import AsyncIterator

import psutil
import pytest

from bench.alone import PROBLEMS
from tests.running import children_with
from tests.search.faulty_workers import process
from tests.search.in_process import run, space
from turnout.errors import Invalid, Misconfigured, Unavailable
from turnout.job import Measurement, Search, Trial, TrialState
from turnout.job.search import Algorithm, Metric, Parameter, Point, Stopping
from turnout.search import SearchWorkerPool, StudyClient, missing_packages
from turnout.search.curve import Curve

BRANIN = PROBLEMS[0]
SECOND = 1_000_000_000


@pytest.fixture
async def pool() -> AsyncIterator[SearchWorkerPool]:
    pool = SearchWorkerPool()
    yield pool
    await pool.close()


@pytest.fixture
def study(pool: SearchWorkerPool) -> StudyClient:
    return StudyClient(pool)


def trial(number: int, point: Point, value: float | None, state: TrialState = TrialState.SUCCEEDED) -> Trial:
    return Trial(
        7, number, f"{number:08x}", 0, point, child=100 + number, created=0, state=state, value=value
    )


def search_processes() -> list[psutil.Process]:
    """The search workers that this process has started."""
    return children_with(os.getpid(), "turnout.search.worker")


async def test_points_are_asked_for_and_results_told(study: StudyClient):
    search = space(BRANIN.bounds, "random", seed=4)
    await study.open(search, 1, [])
    points = [await study.ask(number) for number in range(3)]
    assert points == run(search, BRANIN.objective, 3)
    assert await study.ask(1) == points[1]


async def test_the_service_imports_no_library(study: StudyClient):
    libraries = "{'numpy', 'optuna', 'hyperopt', 'sklearn', 'matplotlib', 'yaml'}"
    code = f"import turnout.app, sys; print({libraries} & set(sys.modules))"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    said, _ = await child.communicate()
    assert said == b"set()\n"


async def test_a_killed_worker_changes_no_point(study: StudyClient):
    search = space(BRANIN.bounds, "tpe_search", seed=4, n_initial_points=3)
    await study.open(search, 1, [])
    points: list[Point] = []
    for number in range(8):
        points.append(await study.ask(number))
        await study.tell(number, BRANIN.objective(points[-1]))
        if number in (3, 5):
            search_processes()[0].kill()
    assert points == run(search, BRANIN.objective, 8)


async def test_a_request_to_a_killed_worker_is_repeated(study: StudyClient):
    search = space(BRANIN.bounds, "bayes_opt_search", seed=4)
    await study.open(search, 1, [])
    await study.ask(0)
    (child,) = search_processes()
    os.kill(child.pid, signal.SIGSTOP)
    answer = asyncio.create_task(study.ask(1))
    await asyncio.sleep(0)
    child.kill()
    assert await answer == run(search, BRANIN.objective, 2)[1]


async def test_a_cancelled_request_does_not_block_the_next(study: StudyClient):
    search = space(BRANIN.bounds, "random", seed=4)
    await study.open(search, 1, [])
    await study.ask(0)
    os.kill(search_processes()[0].pid, signal.SIGSTOP)
    answer = asyncio.create_task(study.ask(1))
    await asyncio.sleep(0.01)
    answer.cancel()
    assert await study.ask(2) == run(search, BRANIN.objective, 3)[2]


async def test_a_search_goes_on_from_its_trials(study: StudyClient):
    search = space(BRANIN.bounds, "default", seed=4)
    whole = run(search, BRANIN.objective, 13)
    past = [trial(number, point, BRANIN.objective(point)) for number, point in enumerate(whole[:12])]
    await study.open(search, 1, past)
    assert await study.ask(12) == whole[12]


async def test_an_algorithm_without_a_seed_uses_that_of_the_search(pool: SearchWorkerPool):
    search = space(BRANIN.bounds, "random")
    points: list[Point] = []
    for seed in (1, 1, 2):
        study = StudyClient(pool)
        await study.open(search, seed, [])
        points.append(await study.ask(0))
    assert points[0] == points[1] != points[2]


async def test_an_idle_worker_ends_and_is_started_again():
    pool = SearchWorkerPool(idle=0.05)
    study = StudyClient(pool)
    search = space(BRANIN.bounds, "random", seed=4)
    await study.open(search, 1, [])
    assert not search_processes()
    first = await study.ask(0)
    assert len(search_processes()) == 1
    # Waiting for the child itself would take its exit status away from the event loop.
    await asyncio.to_thread(_until_alone)
    assert await study.ask(1) == run(search, BRANIN.objective, 2)[1]
    assert await study.ask(0) == first
    await pool.close()
    assert not search_processes()


def _until_alone() -> None:
    end = time.monotonic() + 20
    while search_processes():
        assert time.monotonic() < end
        time.sleep(0.01)


async def test_more_points_than_there_are_trials_are_refused_in_words(study: StudyClient):
    await study.open(space(BRANIN.bounds, "random", num_samples=2), 1, [])
    with pytest.raises(Invalid, match="the search has 2 trials"):
        await study.ask(2)


async def test_an_invalid_search_is_refused_when_it_is_opened(study: StudyClient):
    with pytest.raises(Invalid, match="there is no search algorithm magic"):
        await study.open(space(BRANIN.bounds, "magic"), 1, [])


async def test_a_package_that_is_not_there_is_named():
    pool = SearchWorkerPool(program=process("without_optuna"))
    study = StudyClient(pool)
    await study.open(space(BRANIN.bounds, "random"), 1, [])
    with pytest.raises(Misconfigured, match=r"needs optuna on the server: install Turnout there"):
        await study.ask(0)
    assert missing_packages() == []
    await pool.close()


async def test_a_worker_that_always_dies_is_given_up():
    pool = SearchWorkerPool(program=process("killed"))
    study = StudyClient(pool)
    await study.open(space(BRANIN.bounds, "random"), 1, [])
    with pytest.raises(Unavailable, match="was killed by SIGKILL, 3 times"):
        await study.ask(0)
    await pool.close()


LR = Parameter("lr", "float", 1e-4, 1, scale="log")
SEARCH = Search(
    parameters=(
        LR,
        Parameter("noise", "float", 0, 1),
        Parameter("optimizer", "categorical", values=("sgd", "adam")),
        Parameter("batch", "discrete", values=("16", "32", "64")),
    ),
    metrics=(Metric("accuracy", "max"),),
    algorithms=(Algorithm("random", {"num_samples": 40, "seed": 1}),),
    stopping=Stopping("median", startup=2),
)


def accuracy(point: Point) -> float:
    bonus = 0.1 if point["optimizer"] == "adam" else 0
    return 0.8 - 0.2 * abs(float(point["lr"]) - 0.01) + bonus - (0.3 if float(point["lr"]) > 0.1 else 0)


async def test_importance_is_computed_and_plotted(study: StudyClient):
    points = run(SEARCH, accuracy, 40)
    trials = [trial(number, point, accuracy(point)) for number, point in enumerate(points)]
    await study.open(SEARCH, 1, trials)
    found = await study.importance()
    assert [name for name, _, _ in found][:2] == ["lr", "optimizer"]
    assert all(0 <= mean <= 1 and std >= 0 for _, mean, std in found)
    for name in ("lr", "optimizer", "batch", ""):
        png = await study.picture(name)
        assert png.startswith(b"\x89PNG")
        width, height = struct.unpack(">II", png[16:24])
        assert width > 400
        assert height > 300
    with pytest.raises(Invalid, match="depth is not a parameter that varies; these are: lr, noise"):
        await study.picture("depth")


async def test_importance_is_empty_without_results(study: StudyClient):
    await study.open(SEARCH, 1, [])
    assert await study.importance() == []
    assert (await study.picture("lr")).startswith(b"\x89PNG")
    assert (await study.picture()).startswith(b"\x89PNG")


async def test_a_trial_below_the_median_is_to_be_stopped(study: StudyClient):
    points = run(SEARCH, accuracy, 4)
    await study.open(SEARCH, 1, [trial(n, p, 0.5 + n / 10) for n, p in enumerate(points[:3])])

    def measured(number: int, *values: float) -> Curve:
        curve = Curve(SEARCH)
        for step, value in enumerate(values):
            curve.add(Measurement(7, number, step, step * SECOND, {"accuracy": value}))
        return curve

    others = {0: measured(0, 0.3, 0.4, 0.5), 1: measured(1, 0.4, 0.5, 0.6), 2: measured(2, 0.5, 0.6, 0.7)}
    assert await study.ask(3) == points[3]
    assert not await study.should_stop(3, others | {3: measured(3, 0.45)})
    assert not await study.should_stop(3, others | {3: measured(3, 0.45, 0.5)})
    assert await study.should_stop(3, others | {3: measured(3, 0.45, 0.5, 0.5)})
    search_processes()[0].kill()
    assert await study.should_stop(3, others | {3: measured(3, 0.45, 0.5, 0.5)})
