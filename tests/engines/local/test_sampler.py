"""Samples of running replicas, and gangs that hang. Periods are short; the processes are real."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engines.local.harness import MASTER, EngineHarness
from turnout.engines.local.usage.measure import measure_gpus, measure_tree
from turnout.job import Attempt, Hung, Policy, Program, Resources, Role, Sample, Sampled

BURN = "print('up')\nwhile True: pass"
SLEEP = "import time; print('up'); time.sleep(1000)"
PERIOD = 0.3


@pytest.fixture(params=["none", "bubblewrap"])
async def harness(base_dir: Path, request: pytest.FixtureRequest) -> AsyncIterator[EngineHarness]:
    async with EngineHarness(base_dir, sandbox=request.param, sample_seconds=PERIOD) as one:
        yield one


def samples(harness: EngineHarness, attempt: Attempt) -> list[Sample]:
    of = [report for report in harness.reports if isinstance(report, Sampled) and report.attempt == attempt]
    return [sample for report in of for sample in report.samples]


async def wait_for_samples(harness: EngineHarness, attempt: Attempt, count: int) -> list[Sample]:
    await harness.wait(lambda _: len(samples(harness, attempt)) >= count)
    return samples(harness, attempt)


async def wait_for_hung(harness: EngineHarness, attempt: Attempt) -> Hung:
    found = await harness.wait(lambda report: isinstance(report, Hung) and report.attempt == attempt)
    assert isinstance(found, Hung)
    return found


async def test_a_busy_and_a_sleeping_replica(harness: EngineHarness):
    busy = await harness.python(BURN, resources=Resources.of(cores=0.5, memory=1 << 30))
    idle = await harness.python(SLEEP)
    for one in await wait_for_samples(harness, busy, 2):
        assert one.replica == MASTER
        assert one.memory is not None
        assert 0.1 < one.memory < 20
        assert (one.gpu, one.gpu_memory) == (None, None)
    # On a busy machine it may take a while until a process gets its share.
    await harness.wait(lambda _: any(20 < (one.cpu or 0) <= 100 for one in samples(harness, busy)))
    await harness.wait(lambda _: any((one.cpu or 0) < 10 for one in samples(harness, idle)))
    first = samples(harness, busy)[0].at
    assert first - (await harness.started(busy)).at > PERIOD * 0.8e9


async def test_the_whole_process_tree_counts(harness: EngineHarness):
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    nested = "x = b'1' * (200 << 20); print('up'); import time; time.sleep(1000)"
    attempt = await harness.python(program, nested, resources=Resources(memory=1 << 30))
    await harness.wait_for_output(attempt, "up")
    seen = len(await wait_for_samples(harness, attempt, 1))
    later = (await wait_for_samples(harness, attempt, seen + 2))[-1]
    assert later.memory is not None
    assert 19 < later.memory < 40


async def test_nothing_is_measured_when_nothing_runs(harness: EngineHarness):
    attempt = await harness.python(SLEEP)
    await wait_for_samples(harness, attempt, 1)
    await harness.engine.stop(attempt, 0)
    await harness.ended(attempt)
    count = len(samples(harness, attempt))
    await asyncio.sleep(3 * PERIOD)  # there is no event for nothing happening
    assert len(samples(harness, attempt)) == count


async def test_samples_continue_after_a_restart_of_the_service(harness: EngineHarness):
    attempt = await harness.python(SLEEP, resources=Resources(memory=64 << 20), policy=Policy(hang_seconds=1))
    (first, *_) = await wait_for_samples(harness, attempt, 1)
    await harness.disconnect()
    await harness.reconnect()
    (again, *_) = await wait_for_samples(harness, attempt, 1)
    assert first.memory is not None
    assert again.memory == pytest.approx(first.memory, rel=0.5), "its limit is known still"
    await wait_for_hung(harness, attempt)


# Hanging.


def two_roles(first: str, second: str) -> tuple[Role, ...]:
    return (
        Role("master", Program(("python", "-c", first)), leads=True),
        Role("worker", Program(("python", "-c", second))),
    )


async def test_a_gang_that_does_nothing_is_reported_once(harness: EngineHarness):
    attempt = await harness.start(roles=two_roles(SLEEP, SLEEP), policy=Policy(hang_seconds=0.8))
    report = await wait_for_hung(harness, attempt)
    assert "no process of the job has used CPU time or done I/O" in report.message
    await wait_for_samples(harness, attempt, len(samples(harness, attempt)) + 8)
    assert sum(isinstance(one, Hung) for one in harness.reports) == 1


@pytest.mark.parametrize(
    "busy",
    [
        BURN,
        "import os, time\nwhile True: time.sleep(0.05); os.pread(os.open('/dev/zero', 0), 9, 0)",
    ],
)
async def test_an_active_gang_is_not_reported(harness: EngineHarness, busy: str):
    attempt = await harness.start(roles=two_roles(SLEEP, busy), policy=Policy(hang_seconds=0.6))
    idle = await harness.python(SLEEP, policy=Policy(hang_seconds=0.6))
    await wait_for_hung(harness, idle)
    await wait_for_samples(harness, attempt, len(samples(harness, attempt)) + 8)
    assert [one.attempt for one in harness.reports if isinstance(one, Hung)] == [idle]


async def test_a_gang_without_a_limit_is_never_reported(harness: EngineHarness):
    attempt = await harness.python(SLEEP)
    await wait_for_samples(harness, attempt, 5)
    assert not [report for report in harness.reports if isinstance(report, Hung)]


# The parts.


def test_an_ended_process_has_no_usage():
    assert measure_tree((1 << 22) + 7) is None


def test_without_gpus_there_is_no_gpu_usage():
    assert measure_gpus(()) is None
