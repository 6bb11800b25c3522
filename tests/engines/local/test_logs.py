"""The output of a program is stored unchanged, with its time to the millisecond."""

import asyncio
import itertools
import time
from pathlib import Path

import pytest

from tests.engines.local.harness import MASTER, EngineHarness
from turnout.job import Mount, Trimmed

MIB = 1 << 20


async def test_marks_have_the_time_of_each_write(harness: EngineHarness, base_dir: Path):
    """Each lies between the time before the write and the time at which it was seen."""
    steps = base_dir / "steps"
    steps.mkdir()
    program = """
import os, time
for i in range(5):
    print(i)
    while not os.path.exists(str(i)): time.sleep(0.005)
raise SystemExit('bad')
"""
    moments = [time.time_ns()]
    attempt = await harness.python(program, mounts=(Mount(f"file://{steps}", "/data"),))
    log = harness.engine.log(attempt, MASTER)
    for number in range(5):
        async for _ in harness.engine.follow(attempt):
            if any(mark.stdout == 2 * number + 2 for mark in log.marks()):
                break
        moments.append(time.time_ns())
        (steps / str(number)).touch()
    await harness.ended(attempt)
    marks = log.marks()
    assert all(later.at - earlier.at >= 1_000_000 for earlier, later in itertools.pairwise(marks))
    first = {mark.stdout: mark.at for mark in reversed(marks)}
    for number, (before, after) in enumerate(itertools.pairwise(moments)):
        assert before < first[2 * number + 2] <= after
    assert (marks[-1].stdout, marks[-1].stderr) == (10, 4)
    assert marks[-1].at <= time.time_ns()


async def test_marks_can_be_read_in_parts(harness: EngineHarness):
    attempt = await harness.python("import time\nfor i in range(5): print(i); time.sleep(0.02)")
    await harness.ended(attempt)
    log = harness.engine.log(attempt, MASTER)
    everything = log.marks()
    assert log.mark_count() == len(everything)
    assert log.marks(1, 2) == everything[1:3]
    assert log.marks(2) == everything[2:]
    assert log.marks(1000) == []


async def test_the_log_of_an_unknown_replica_is_empty(unsandboxed: EngineHarness):
    log = unsandboxed.engine.log((await unsandboxed.run("true")).attempt, MASTER._replace(role="other"))
    assert (log.size(0), log.read(1, 0, 10), log.hole(0), log.marks(), log.mark_count()) == (
        0,
        b"",
        None,
        [],
        0,
    )


async def test_a_program_can_write_to_dev_stdout_and_dev_stderr(harness: EngineHarness):
    end = await harness.run("sh", "-c", "echo out > /dev/stdout; echo err > /dev/stderr; cat /dev/stdin")
    assert end.code == 0
    assert (harness.output(end.attempt), harness.output(end.attempt, stream=1)) == ("out\n", "err\n")


async def test_truncating_dev_stdout_in_the_sandbox_erases_nothing(sandboxed: EngineHarness):
    script = "for i in $(seq 100); do echo line $i; echo by name $i > /dev/stdout; done"
    end = await sandboxed.run("sh", "-c", script)
    lines = sandboxed.output(end.attempt).splitlines()
    wanted = [f"line {i}" for i in range(1, 101)] + [f"by name {i}" for i in range(1, 101)]
    assert sorted(lines) == sorted(wanted)


async def test_much_output_to_dev_stdout_does_not_stall(sandboxed: EngineHarness):
    end = await sandboxed.run("sh", "-c", "head -c 3000000 /dev/zero > /dev/stderr")
    assert end.code == 0
    assert sandboxed.engine.log(end.attempt, MASTER).size(1) == 3_000_000


async def test_a_follower_is_notified_of_output(harness: EngineHarness):
    attempt = await harness.python(
        "import sys\nfor line in range(3): print(line, flush=True)\nimport time; time.sleep(1000)"
    )
    seen = await harness.wait_for_output(attempt, "2\n")
    assert seen == "0\n1\n2\n"


async def test_a_follower_is_notified_of_the_end(harness: EngineHarness):
    attempt = await harness.start("sh", "-c", "sleep 0.1")
    async with asyncio.timeout(10):
        async for _ in harness.engine.follow(attempt):
            if any(getattr(report, "code", None) == 0 for report in harness.reports):
                break


async def test_a_log_above_its_limit_loses_its_middle(base_dir):
    async with EngineHarness(base_dir, sandbox="none", log_bytes=8 * MIB) as harness:
        program = """
import os, time
for number in range(400):
    os.write(1, b'%07d\\n' % number * 16384)
    time.sleep(0.001)
"""
        attempt = await harness.python(program)
        await harness.ended(attempt)
        log = harness.engine.log(attempt, MASTER)
        assert log.size(0) == 50 * MIB
        hole = log.hole(0)
        assert hole is not None
        assert hole[0] == MIB
        assert 2 * MIB <= log.size(0) - hole[1] <= 8 * MIB
        assert log.read(0, 0, 2 * MIB) == b"".join(b"%07d\n" % number * 16384 for number in range(8))
        assert log.read(0, MIB, 10) == b""
        assert log.read(0, log.size(0) - 8, 100) == b"0000399\n"
        assert (harness.paths.replica(attempt, MASTER) / "stdout").stat().st_blocks * 512 <= 10 * MIB
        trimmed = [report for report in harness.reports if isinstance(report, Trimmed)]
        assert len(trimmed) == 1
        assert "first MiB" in trimmed[0].message


@pytest.mark.parametrize("sandbox", ["none", "bubblewrap"])
async def test_the_last_output_is_marked_before_the_end_is_reported(base_dir, sandbox: str):
    async with EngineHarness(base_dir, sandbox=sandbox) as harness:
        for _ in range(20):
            end = await harness.run("sh", "-c", "echo a; echo b >&2; echo c")
            (*_, last) = harness.engine.log(end.attempt, MASTER).marks()
            assert (last.stdout, last.stderr) == (4, 2)


async def test_a_follower_misses_no_output_while_it_subscribes(unsandboxed: EngineHarness):
    """Nothing is lost between the follower's first read and its subscription at the supervisor."""
    for _ in range(40):
        attempt = await unsandboxed.start("sh", "-c", "echo ready; exec sleep 1000")
        assert await unsandboxed.wait_for_output(attempt, "ready") == "ready\n"
        await unsandboxed.engine.stop(attempt, 5)
