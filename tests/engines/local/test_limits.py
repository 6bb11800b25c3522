"""Limits are kept, by cgroups where the keeper may make them, and what breaks them is named."""

import os

import pytest

from tests.engines.local.yard import Yard
from turnout.job import Cause, Resources

MIB = 1 << 20

needs_cgroups = pytest.mark.skipif(os.geteuid() != 0, reason="only root may make cgroups here")


@needs_cgroups
async def test_a_memory_kill_is_named(yard: Yard):
    program = "x = bytearray(400 << 20); print(len(x))"
    end = await yard.ended(await yard.python(program, resources=Resources(memory=100 * MIB)))
    assert end.cause == Cause.OUT_OF_MEMORY
    assert str(100 * MIB) in end.message
    end = await yard.ended(await yard.python(program, resources=Resources(memory=800 * MIB)))
    assert (end.cause, end.code) == (Cause.EXIT, 0)


@needs_cgroups
async def test_a_child_that_is_killed_for_memory_is_not_the_end_of_the_job(yard: Yard):
    program = """
import subprocess, sys
child = subprocess.run([sys.executable, '-c', 'x = bytearray(400 << 20)'])
print(child.returncode)
"""
    end = await yard.ended(await yard.python(program, resources=Resources(memory=100 * MIB)))
    assert (end.cause, end.code) == (Cause.EXIT, 0)
    assert yard.out(end.attempt) == "-9\n"


@needs_cgroups
async def test_cores_are_shared_out(yard: Yard):
    program = """
import time
start, end = time.process_time(), time.monotonic() + 1
while time.monotonic() < end: pass
print(time.process_time() - start)
"""
    end = await yard.ended(await yard.python(program, resources=Resources(cpu=0.25)))
    assert float(yard.out(end.attempt)) < 0.5


@needs_cgroups
async def test_a_cgroup_is_used_again_and_none_is_left(yard: Yard):
    own = "cat /proc/self/cgroup | grep -E ':(cpu|memory|pids)[:,]|^0::'"
    seen: set[str] = set()
    for _ in range(3):
        end = await yard.run("sh", "-c", own, resources=Resources(cpu=1, memory=200 * MIB))
        seen.add(yard.out(end.attempt))
    assert len(seen) == 1
    free = await yard.run("sh", "-c", own)
    assert yard.out(free.attempt) not in seen


@needs_cgroups
async def test_what_a_limited_program_leaves_behind_is_ended(yard: Yard):
    end = await yard.run(
        "sh", "-c", "env -i setsid sleep 2000.21 & sleep 0.05", resources=Resources(cpu=1, memory=200 * MIB)
    )
    assert end.code == 0
    again = await yard.run("true", resources=Resources(cpu=1, memory=200 * MIB))
    assert again.code == 0


async def test_the_number_of_processes_is_limited(place):
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
    async with Yard(place, sandbox="none", processes=50) as yard:
        for resources in (Resources(), Resources(cpu=1)):
            end = await yard.ended(await yard.python(program, resources=resources))
            # Without a cgroup the kernel counts all processes of the user, and we can only tell it more than enough.
            assert 0 < int(yard.out(end.attempt)) < 2000
            if resources.cpu and os.geteuid() == 0:
                assert int(yard.out(end.attempt)) < 50


async def test_the_limit_of_open_files_is_the_settings(bare_yard: Yard):
    end = await bare_yard.run("sh", "-c", "ulimit -n")
    assert bare_yard.out(end.attempt) == "4096\n"
