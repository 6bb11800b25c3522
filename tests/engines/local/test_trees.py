"""Nothing that a program starts outlives it."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.engines.local.yard import Yard, alive
from turnout.job import Cause


async def test_a_daemon_ends_with_the_program(yard: Yard):
    seconds = "2000.11"
    script = f"setsid sleep {seconds} & setsid setsid sleep {seconds} & echo ready; sleep 0.1"
    attempt = await yard.start("sh", "-c", script)
    end = await yard.ended(attempt)
    assert (end.cause, end.code) == (Cause.EXIT, 0)
    assert not alive(seconds)


async def test_one_that_empties_its_environment_too(yard: Yard):
    end = await yard.run("sh", "-c", "env -i setsid sleep 2000.12 & sleep 0.1; exit 5")
    assert end.code == 5
    assert not alive("2000.12")


async def test_one_that_also_closes_all_files(yard: Yard):
    end = await yard.run("sh", "-c", "env -i setsid sleep 2000.13 <&- >&- 2>&- & sleep 0.1")
    assert end.code == 0
    assert not alive("2000.13")


async def test_a_neighbours_daemon_is_let_be(bare_yard: Yard):
    attempt = await bare_yard.start("sh", "-c", "(setsid sleep 2000.14 &) ; echo ready; sleep 1000")
    await bare_yard.printed(attempt, "ready")
    for _ in range(3):
        await bare_yard.run("sh", "-c", "(setsid sleep 2000.15 &)")
    assert not alive("2000.15")
    assert alive("2000.14")
    await bare_yard.engine.stop(attempt, 5)
    await bare_yard.ended(attempt)
    assert not alive("2000.14")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make cgroups here")
@pytest.mark.parametrize("restarted", [False, True])
async def test_one_that_hides_from_everybody_ends_too(bare_yard: Yard, restarted: bool):
    """No environment, no files, another session and parent, a neighbour that it may be of: its cgroup tells."""
    neighbour = await bare_yard.start("sleep", "1000")
    script = "(env -i setsid setsid sleep 2000.17 <&- >&- 2>&- &); echo ready; sleep 1000"
    attempt = await bare_yard.start("sh", "-c", script)
    await bare_yard.printed(attempt, "ready")
    while not alive("sleep\0002000.17"):  # noqa: ASYNC110 nobody tells of it
        await asyncio.sleep(0.01)
    if restarted:
        await bare_yard.kill_keeper()
    await bare_yard.engine.stop(attempt, 5)
    await bare_yard.ended(attempt)
    assert not alive("sleep\0002000.17")
    assert (await bare_yard.started(neighbour)).pid in alive("sleep\0001000")


@pytest.mark.parametrize("sandbox", ["none", "bubblewrap"])
async def test_one_that_forks_for_ever_meets_its_limit_and_ends(place, sandbox: str):
    bomb = """
import os
if os.fork() == 0: os.setsid()
marker = 'bomb-2000.16'
while True:
    try: os.fork()
    except OSError: print('refused', flush=True)
"""
    async with Yard(place, sandbox=sandbox, processes=60) as yard:
        attempt = await yard.python(bomb)
        await yard.printed(attempt, "refused")
        await yard.engine.stop(attempt, 0.1)
        assert (await yard.ended(attempt)).cause == Cause.STOPPED
        assert not alive("bomb-2000.16")
        assert (await yard.run("true")).code == 0


async def test_zombies_of_a_long_running_program_are_reaped(bare_yard: Yard):
    attempt = await bare_yard.start(
        "sh", "-c", "for i in 1 2 3 4 5; do (setsid true &); done; echo ready; sleep 1000"
    )
    await bare_yard.printed(attempt, "ready")
    # It was told of the orphans' ends before it was told of this one's.
    await bare_yard.run("sleep", "0.2")
    children = Path(f"/proc/{bare_yard.keeper}/task/{bare_yard.keeper}/children").read_text().split()
    assert len(children) == 1
