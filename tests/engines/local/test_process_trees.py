"""No process that a program starts outlives it."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.engines.local.harness import EngineHarness, running_processes
from turnout.job import Cause


async def test_a_daemon_ends_with_the_program(harness: EngineHarness):
    seconds = "2000.11"
    script = f"setsid sleep {seconds} & setsid setsid sleep {seconds} & echo ready; sleep 0.1"
    attempt = await harness.start("sh", "-c", script)
    end = await harness.ended(attempt)
    assert (end.cause, end.code) == (Cause.EXIT, 0)
    assert not running_processes(seconds)


async def test_a_daemon_that_empties_its_environment_ends_too(harness: EngineHarness):
    end = await harness.run("sh", "-c", "env -i setsid sleep 2000.12 & sleep 0.1; exit 5")
    assert end.code == 5
    assert not running_processes("2000.12")


async def test_a_daemon_that_also_closes_all_files_ends_too(harness: EngineHarness):
    end = await harness.run("sh", "-c", "env -i setsid sleep 2000.13 <&- >&- 2>&- & sleep 0.1")
    assert end.code == 0
    assert not running_processes("2000.13")


async def test_a_daemon_of_another_job_is_left_alone(unsandboxed: EngineHarness):
    attempt = await unsandboxed.start("sh", "-c", "(setsid sleep 2000.14 &) ; echo ready; sleep 1000")
    await unsandboxed.wait_for_output(attempt, "ready")
    for _ in range(3):
        await unsandboxed.run("sh", "-c", "(setsid sleep 2000.15 &)")
    assert not running_processes("2000.15")
    assert running_processes("2000.14")
    await unsandboxed.engine.stop(attempt, 5)
    await unsandboxed.ended(attempt)
    assert not running_processes("2000.14")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make cgroups here")
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_daemon_that_hides_in_every_way_ends_too(unsandboxed: EngineHarness, restarted: bool):
    """It has no environment, no files, another session and parent. Only its cgroup says which job it belongs to."""
    neighbour = await unsandboxed.start("sleep", "1000")
    script = "(env -i setsid setsid sleep 2000.17 <&- >&- 2>&- &); echo ready; sleep 1000"
    attempt = await unsandboxed.start("sh", "-c", script)
    await unsandboxed.wait_for_output(attempt, "ready")
    while not running_processes("sleep\0002000.17"):  # noqa: ASYNC110 there is no event for it
        await asyncio.sleep(0.01)
    if restarted:
        await unsandboxed.kill_supervisor()
    await unsandboxed.engine.stop(attempt, 5)
    await unsandboxed.ended(attempt)
    assert not running_processes("sleep\0002000.17")
    assert (await unsandboxed.started(neighbour)).pid in running_processes("sleep\0001000")


@pytest.mark.parametrize("sandbox", ["none", "bubblewrap"])
async def test_a_fork_bomb_reaches_its_limit_and_ends(base_dir, sandbox: str):
    bomb = """
import os
if os.fork() == 0: os.setsid()
marker = 'bomb-2000.16'
while True:
    try: os.fork()
    except OSError: print('refused', flush=True)
"""
    async with EngineHarness(base_dir, sandbox=sandbox, processes=60) as harness:
        attempt = await harness.python(bomb)
        await harness.wait_for_output(attempt, "refused")
        await harness.engine.stop(attempt, 0.1)
        assert (await harness.ended(attempt)).cause == Cause.STOPPED
        assert not running_processes("bomb-2000.16")
        assert (await harness.run("true")).code == 0


async def test_zombies_of_a_long_running_program_are_reaped(unsandboxed: EngineHarness):
    attempt = await unsandboxed.start(
        "sh", "-c", "for i in 1 2 3 4 5; do (setsid true &); done; echo ready; sleep 1000"
    )
    await unsandboxed.wait_for_output(attempt, "ready")
    # The supervisor got the orphans' ends before the end of this process.
    await unsandboxed.run("sleep", "0.2")
    children = (
        Path(f"/proc/{unsandboxed.supervisor}/task/{unsandboxed.supervisor}/children").read_text().split()
    )
    assert not [pid for pid in children if "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()]
