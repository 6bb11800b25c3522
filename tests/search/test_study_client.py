"""The libraries in a process of their own, as the service uses them."""

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
from tests.search.searching import run, space
from turnout.errors import Invalid, Misconfigured, Unavailable
from turnout.job import Measurement, Search, Trial, TrialState
from turnout.job.search import Algorithm, Metric, Parameter, Point, Stopping
from turnout.search import Asker, asker, missing_packages

BRANIN = PROBLEMS[0]
SECOND = 1_000_000_000


@pytest.fixture
async def asking() -> AsyncIterator[Asker]:
    asking = Asker()
    yield asking
    await asking.close()


def trial(number: int, point: Point, value: float | None, state: TrialState = TrialState.SUCCEEDED) -> Trial:
    return Trial(
        7, number, f"{number:08x}", 0, point, child=100 + number, created=0, state=state, value=value
    )


def searching() -> list[psutil.Process]:
    """The processes of searches; the one that is asked is its parent's only one of this kind."""
    return children_with(os.getpid(), "turnout.search.child")


async def test_points_are_asked_for_and_results_told(asking: Asker):
    search = space(BRANIN.bounds, "random", seed=4)
    await asking.open(search, 1, [])
    points = [await asking.ask(number) for number in range(3)]
    assert points == run(search, BRANIN.objective, 3)
    assert await asking.ask(1) == points[1]


async def test_nothing_is_imported_here(asking: Asker):
    code = "import turnout.search, sys; print({'numpy', 'optuna', 'hyperopt', 'sklearn'} & set(sys.modules))"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    said, _ = await child.communicate()
    assert said == b"set()\n"


async def test_a_process_that_is_killed_changes_nothing(asking: Asker):
    search = space(BRANIN.bounds, "tpe_search", seed=4, n_initial_points=3)
    await asking.open(search, 1, [])
    points: list[Point] = []
    for number in range(8):
        points.append(await asking.ask(number))
        await asking.tell(number, BRANIN.objective(points[-1]))
        if number in (3, 5):
            searching()[0].kill()
    assert points == run(search, BRANIN.objective, 8)


async def test_one_that_is_killed_while_it_thinks_is_asked_again(asking: Asker):
    search = space(BRANIN.bounds, "bayes_opt_search", seed=4)
    await asking.open(search, 1, [])
    await asking.ask(0)
    (child,) = searching()
    os.kill(child.pid, signal.SIGSTOP)
    answer = asyncio.create_task(asking.ask(1))
    await asyncio.sleep(0)
    child.kill()
    assert await answer == run(search, BRANIN.objective, 2)[1]


async def test_a_question_that_nobody_waits_for_any_more_does_not_get_in_the_way(asking: Asker):
    search = space(BRANIN.bounds, "random", seed=4)
    await asking.open(search, 1, [])
    await asking.ask(0)
    os.kill(searching()[0].pid, signal.SIGSTOP)
    answer = asyncio.create_task(asking.ask(1))
    await asyncio.sleep(0.01)
    answer.cancel()
    assert await asking.ask(2) == run(search, BRANIN.objective, 3)[2]


async def test_a_search_goes_on_from_its_trials(asking: Asker):
    search = space(BRANIN.bounds, "default", seed=4)
    whole = run(search, BRANIN.objective, 13)
    past = [trial(number, point, BRANIN.objective(point)) for number, point in enumerate(whole[:12])]
    await asking.open(search, 1, past)
    assert await asking.ask(12) == whole[12]


async def test_who_has_no_seed_gets_the_searches():
    search = space(BRANIN.bounds, "random")
    points: list[Point] = []
    for seed in (1, 1, 2):
        asking = Asker()
        await asking.open(search, seed, [])
        points.append(await asking.ask(0))
        await asking.close()
    assert points[0] == points[1] != points[2]


async def test_the_process_ends_when_nobody_asks_and_comes_back():
    asking = Asker(idle=0.05)
    search = space(BRANIN.bounds, "random", seed=4)
    await asking.open(search, 1, [])
    assert not searching()
    first = await asking.ask(0)
    assert len(searching()) == 1
    # Not by waiting for the child itself: that would take its end away from the loop.
    await asyncio.to_thread(_until_alone)
    assert await asking.ask(1) == run(search, BRANIN.objective, 2)[1]
    assert await asking.ask(0) == first
    await asking.close()
    assert not searching()


def _until_alone() -> None:
    end = time.monotonic() + 20
    while searching():
        assert time.monotonic() < end
        time.sleep(0.01)


async def test_more_points_than_there_are_trials_are_refused_in_words(asking: Asker):
    await asking.open(space(BRANIN.bounds, "random", num_samples=2), 1, [])
    with pytest.raises(Invalid, match="the search has 2 trials"):
        await asking.ask(2)


async def test_a_search_that_makes_no_sense_is_refused_when_it_is_opened(asking: Asker):
    with pytest.raises(Invalid, match="there is no search algorithm magic"):
        await asking.open(space(BRANIN.bounds, "magic"), 1, [])


async def test_a_package_that_is_not_there_is_named(asking: Asker, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(asker, "_START", "import sys; sys.modules['optuna'] = None; " + asker._START)
    await asking.open(space(BRANIN.bounds, "random"), 1, [])
    with pytest.raises(Misconfigured, match=r"needs optuna on the server: pip install 'turnout\[search\]'"):
        await asking.ask(0)
    assert missing_packages() == []


async def test_a_process_that_cannot_live_is_given_up(asking: Asker, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(asker, "_START", "raise SystemExit(3)")
    await asking.open(space(BRANIN.bounds, "random"), 1, [])
    with pytest.raises(Unavailable, match="ended 3 times"):
        await asking.ask(0)


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


async def test_what_mattered_is_found_and_drawn(asking: Asker):
    points = run(SEARCH, accuracy, 40)
    trials = [trial(number, point, accuracy(point)) for number, point in enumerate(points)]
    await asking.open(SEARCH, 1, trials)
    found = await asking.importance()
    assert [name for name, _, _ in found][:2] == ["lr", "optimizer"]
    assert found == await asking.importance(trials)
    assert all(0 <= mean <= 1 and std >= 0 for _, mean, std in found)
    for name in ("lr", "optimizer", "batch", ""):
        png = await asking.picture(name)
        assert png.startswith(b"\x89PNG")
        width, height = struct.unpack(">II", png[16:24])
        assert width > 400
        assert height > 300
    with pytest.raises(Invalid, match="depth is not a parameter that varies; these are: lr, noise"):
        await asking.picture("depth")


async def test_without_results_nothing_mattered_yet(asking: Asker):
    await asking.open(SEARCH, 1, [])
    assert await asking.importance() == []
    assert (await asking.picture("lr")).startswith(b"\x89PNG")
    assert (await asking.picture()).startswith(b"\x89PNG")


async def test_a_trial_below_the_median_is_to_be_stopped(asking: Asker):
    points = run(SEARCH, accuracy, 4)
    await asking.open(SEARCH, 1, [trial(n, p, 0.5 + n / 10) for n, p in enumerate(points[:3])])

    def measured(number: int, *values: float) -> list[Measurement]:
        return [Measurement(7, number, step, step * SECOND, {"accuracy": v}) for step, v in enumerate(values)]

    others = measured(0, 0.3, 0.4, 0.5) + measured(1, 0.4, 0.5, 0.6) + measured(2, 0.5, 0.6, 0.7)
    assert await asking.ask(3) == points[3]
    assert not await asking.should_stop(3, [*others, *measured(3, 0.45)])
    assert not await asking.should_stop(3, [*others, *measured(3, 0.45, 0.5)])
    assert await asking.should_stop(3, [*others, *measured(3, 0.45, 0.5, 0.5)])
    searching()[0].kill()
    assert await asking.should_stop(3, [*others, *measured(3, 0.45, 0.5, 0.5)])
