"""What running replicas use, and gangs that do nothing any more. Periods are short; the processes are real."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engines.local.yard import MASTER, Yard
from turnout.engines.local.usage import of_gpus, of_tree
from turnout.job import Attempt, Hung, Policy, Program, Resources, Role, Sample, Sampled

BURN = "print('up')\nwhile True: pass"
SLEEP = "import time; print('up'); time.sleep(1000)"
PERIOD = 0.3


@pytest.fixture(params=["none", "bubblewrap"])
async def yard(place: Path, request: pytest.FixtureRequest) -> AsyncIterator[Yard]:
    async with Yard(place, sandbox=request.param, sample_seconds=PERIOD) as one:
        yield one


def samples(yard: Yard, attempt: Attempt) -> list[Sample]:
    of = [report for report in yard.reports if isinstance(report, Sampled) and report.attempt == attempt]
    return [sample for report in of for sample in report.samples]


async def sampled(yard: Yard, attempt: Attempt, count: int) -> list[Sample]:
    await yard.wait(lambda _: len(samples(yard, attempt)) >= count)
    return samples(yard, attempt)


async def hung(yard: Yard, attempt: Attempt) -> Hung:
    found = await yard.wait(lambda report: isinstance(report, Hung) and report.attempt == attempt)
    assert isinstance(found, Hung)
    return found


async def test_one_that_works_and_one_that_sleeps(yard: Yard):
    busy = await yard.python(BURN, resources=Resources(cpu=0.5, memory=1 << 30))
    idle = await yard.python(SLEEP)
    for one in await sampled(yard, busy, 2):
        assert one.replica == MASTER
        assert one.memory is not None
        assert 0.1 < one.memory < 20
        assert (one.gpu, one.gpu_memory) == (None, None)
    # On a machine that has more to do it may take a while until one gets its share.
    await yard.wait(lambda _: any(20 < (one.cpu or 0) <= 100 for one in samples(yard, busy)))
    await yard.wait(lambda _: any((one.cpu or 0) < 10 for one in samples(yard, idle)))
    first = samples(yard, busy)[0].at
    assert first - (await yard.started(busy)).at > PERIOD * 0.8e9


async def test_the_whole_tree_counts(yard: Yard):
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    nested = "x = b'1' * (200 << 20); print('up'); import time; time.sleep(1000)"
    attempt = await yard.python(program, nested, resources=Resources(memory=1 << 30))
    await yard.printed(attempt, "up")
    seen = len(await sampled(yard, attempt, 1))
    later = (await sampled(yard, attempt, seen + 2))[-1]
    assert later.memory is not None
    assert 19 < later.memory < 40


async def test_nothing_is_measured_when_nothing_runs(yard: Yard):
    attempt = await yard.python(SLEEP)
    await sampled(yard, attempt, 1)
    await yard.engine.stop(attempt, 0)
    await yard.ended(attempt)
    count = len(samples(yard, attempt))
    await asyncio.sleep(3 * PERIOD)  # nothing tells that nothing happens
    assert len(samples(yard, attempt)) == count


async def test_it_goes_on_after_a_restart_of_the_service(yard: Yard):
    attempt = await yard.python(SLEEP, resources=Resources(memory=64 << 20), policy=Policy(hang_seconds=1))
    (first, *_) = await sampled(yard, attempt, 1)
    await yard.leave()
    await yard.come_back()
    (again, *_) = await sampled(yard, attempt, 1)
    assert first.memory is not None
    assert again.memory == pytest.approx(first.memory, rel=0.5), "its limit is known still"
    await hung(yard, attempt)


# Hanging.


def two(first: str, second: str) -> tuple[Role, ...]:
    return (
        Role("master", Program(("python", "-c", first)), leads=True),
        Role("worker", Program(("python", "-c", second))),
    )


async def test_a_gang_that_does_nothing_has_hung_and_is_told_once(yard: Yard):
    attempt = await yard.start(roles=two(SLEEP, SLEEP), policy=Policy(hang_seconds=0.8))
    report = await hung(yard, attempt)
    assert "no process of the job has used CPU time or done I/O" in report.message
    await sampled(yard, attempt, len(samples(yard, attempt)) + 8)
    assert sum(isinstance(one, Hung) for one in yard.reports) == 1


@pytest.mark.parametrize(
    "busy",
    [
        BURN,
        "import os, time\nwhile True: time.sleep(0.05); os.pread(os.open('/dev/zero', 0), 9, 0)",
    ],
)
async def test_who_does_something_has_not(yard: Yard, busy: str):
    attempt = await yard.start(roles=two(SLEEP, busy), policy=Policy(hang_seconds=0.6))
    idle = await yard.python(SLEEP, policy=Policy(hang_seconds=0.6))
    await hung(yard, idle)
    await sampled(yard, attempt, len(samples(yard, attempt)) + 8)
    assert [one.attempt for one in yard.reports if isinstance(one, Hung)] == [idle]


async def test_who_has_no_limit_never_hangs(yard: Yard):
    attempt = await yard.python(SLEEP)
    await sampled(yard, attempt, 5)
    assert not [report for report in yard.reports if isinstance(report, Hung)]


# The parts.


def test_a_process_that_is_gone_uses_nothing():
    assert of_tree((1 << 22) + 7) is None


def test_no_gpus_are_not_measured():
    assert of_gpus(()) is None
