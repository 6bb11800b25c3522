"""The machine's clock is set: limits and grace periods keep their length, and reported times never decrease."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines.local.harness import MASTER, EngineHarness
from turnout.job import Cause, Policy

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)

pytestmark = pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed")


class Clock:
    """The clock of supervisors that start while this file exists."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set("+0")

    def set(self, offset: str) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_text(offset)
        fresh.chmod(0o644)
        fresh.rename(self._file)


@pytest.fixture
def clock(base_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    spawn = os.posix_spawn
    fake = {
        "LD_PRELOAD": str(LIBRARY),
        "FAKETIME_TIMESTAMP_FILE": str(base_dir / "clock"),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }

    def spawn_faked(path: str, argv: list[str], env: dict[str, str], **more: Any) -> int:
        return spawn(path, argv, env | fake, **more)

    monkeypatch.setattr(os, "posix_spawn", spawn_faked)
    return Clock(base_dir / "clock")


@pytest.fixture(params=["none", "bubblewrap"])
async def harness(
    base_dir: Path, clock: Clock, request: pytest.FixtureRequest
) -> AsyncIterator[EngineHarness]:
    async with EngineHarness(base_dir, sandbox=request.param) as one:
        yield one


DAYS = 20 * 86400 * 10**9
IGNORE_TERM = "trap 'echo no' TERM; echo on; while :; do sleep 0.01; done"


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("step", ["-30d", "+30d"])
async def test_the_clock_is_set_between_term_and_kill(
    harness: EngineHarness, clock: Clock, step: str, killed: bool
):
    attempt = await harness.start("sh", "-c", IGNORE_TERM)
    await harness.wait_for_output(attempt, "on")
    started = await harness.started(attempt)
    began = asyncio.get_running_loop().time()
    await harness.engine.stop(attempt, 1.5)
    await harness.wait_for_output(attempt, "no")
    clock.set(step)
    if killed:
        await harness.kill_supervisor()
    end = await harness.ended(attempt)
    assert (end.cause, end.signal) == (Cause.STOPPED, 9)
    assert asyncio.get_running_loop().time() - began >= 1.4
    assert end.at >= started.at
    # The exit record that a later supervisor reads has the time of the kernel's own clock.
    assert killed or (end.at > started.at + DAYS) == (step == "+30d"), "it was the clock that was set"
    clock.set("+0")


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("step", ["-30d", "+30d"])
async def test_the_clock_is_set_while_a_time_limit_runs(
    harness: EngineHarness, clock: Clock, step: str, killed: bool
):
    began = asyncio.get_running_loop().time()
    attempt = await harness.start("sleep", "1000", policy=Policy(time_limit=1.5, grace=1))
    started = await harness.started(attempt)
    clock.set(step)
    if killed:
        await harness.kill_supervisor()
    end = await harness.ended(attempt)
    assert end.cause == Cause.TIME_LIMIT
    assert asyncio.get_running_loop().time() - began >= 1.4
    assert end.at >= started.at
    clock.set("+0")


async def test_reported_times_never_decrease(harness: EngineHarness, clock: Clock):
    attempt = await harness.start(
        "sh", "-c", "echo 1; while [ ! -e now ]; do sleep 0.02; done; echo 2; exit 3"
    )
    await harness.wait_for_output(attempt, "1")
    clock.set("-1d")
    (harness.paths.workspace(attempt, MASTER) / "now").touch()
    end = await harness.ended(attempt)
    assert end.code == 3
    assert end.at >= (await harness.started(attempt)).at
    marks = [mark.at for mark in harness.engine.log(attempt, MASTER).marks()]
    assert len(marks) == 2
    assert all(earlier < later for earlier, later in itertools.pairwise(marks))
    clock.set("+0")
