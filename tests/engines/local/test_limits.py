"""Limits hold, by cgroups if the supervisor can make them, and the report names the limit that was exceeded."""

import os

import pytest

from tests.engines.local.harness import EngineHarness
from turnout.job import Cause, Resources

MIB = 1 << 20

needs_cgroups = pytest.mark.skipif(os.geteuid() != 0, reason="only root may make cgroups here")


@needs_cgroups
async def test_a_kill_for_memory_is_reported_as_such(harness: EngineHarness):
    program = "x = bytearray(400 << 20); print(len(x))"
    end = await harness.ended(await harness.python(program, resources=Resources(memory=100 * MIB)))
    assert end.cause == Cause.OUT_OF_MEMORY
    assert str(100 * MIB) in end.message
    end = await harness.ended(await harness.python(program, resources=Resources(memory=800 * MIB)))
    assert (end.cause, end.code) == (Cause.EXIT, 0)


@needs_cgroups
async def test_a_child_killed_for_memory_does_not_end_the_job(harness: EngineHarness):
    program = """
import subprocess, sys
child = subprocess.run([sys.executable, '-c', 'x = bytearray(400 << 20)'])
print(child.returncode)
"""
    end = await harness.ended(await harness.python(program, resources=Resources(memory=100 * MIB)))
    assert (end.cause, end.code) == (Cause.EXIT, 0)
    assert harness.output(end.attempt) == "-9\n"


@needs_cgroups
async def test_a_replica_gets_the_cores_that_it_requested(harness: EngineHarness):
    program = """
import time
start, end = time.process_time(), time.monotonic() + 1
while time.monotonic() < end: pass
print(time.process_time() - start)
"""
    end = await harness.ended(await harness.python(program, resources=Resources.of(cores=0.25)))
    assert float(harness.output(end.attempt)) < 0.5


@needs_cgroups
async def test_cgroups_are_reused_and_removed(harness: EngineHarness):
    own = "cat /proc/self/cgroup | grep -E ':(cpu|memory|pids)[:,]|^0::'"
    seen: set[str] = set()
    for _ in range(3):
        end = await harness.run("sh", "-c", own, resources=Resources.of(cores=1, memory=200 * MIB))
        seen.add(harness.output(end.attempt))
    assert len(seen) == 1
    free = await harness.run("sh", "-c", own)
    assert harness.output(free.attempt) not in seen


@needs_cgroups
async def test_processes_that_a_limited_program_leaves_behind_are_ended(harness: EngineHarness):
    end = await harness.run(
        "sh",
        "-c",
        "env -i setsid sleep 2000.21 & sleep 0.05",
        resources=Resources.of(cores=1, memory=200 * MIB),
    )
    assert end.code == 0
    again = await harness.run("true", resources=Resources.of(cores=1, memory=200 * MIB))
    assert again.code == 0


async def test_the_number_of_processes_is_limited(base_dir):
    program = """
import os, time
count = 0
try:
    while True:
        if os.fork() == 0: time.sleep(1000)
        count += 1
except OSError:
    print(count)
"""
    async with EngineHarness(base_dir, sandbox="none", processes=50) as harness:
        for resources in (Resources(), Resources.of(cores=1)):
            end = await harness.ended(await harness.python(program, resources=resources))
            # Without a cgroup the kernel counts all processes of the user, so the limit has to be generous.
            assert 0 < int(harness.output(end.attempt)) < 2000
            if resources.millicores and os.geteuid() == 0:
                assert int(harness.output(end.attempt)) < 50


async def test_the_limit_of_open_files_comes_from_the_settings(unsandboxed: EngineHarness):
    end = await unsandboxed.run("sh", "-c", "ulimit -n")
    assert unsandboxed.output(end.attempt) == "4096\n"
