"""What a program prints is kept as it is, and when it was printed is known to the millisecond."""

import asyncio
import itertools
import time
from pathlib import Path

import pytest

from tests.engines.local.yard import MASTER, Yard
from turnout.job import Mount, Trimmed

MIB = 1 << 20


async def test_marks_tell_when_it_was_written(yard: Yard, place: Path):
    """Between what was there before it was written and what came after it was seen."""
    steps = place / "steps"
    steps.mkdir()
    program = """
import os, time
for i in range(5):
    print(i)
    while not os.path.exists(str(i)): time.sleep(0.005)
raise SystemExit('bad')
"""
    moments = [time.time_ns()]
    attempt = await yard.python(program, mounts=(Mount(f"file://{steps}", "/data"),))
    log = yard.engine.log(attempt, MASTER)
    for number in range(5):
        async for _ in yard.engine.follow(attempt):
            if any(mark.stdout == 2 * number + 2 for mark in log.marks()):
                break
        moments.append(time.time_ns())
        (steps / str(number)).touch()
    await yard.ended(attempt)
    marks = log.marks()
    assert all(later.at - earlier.at >= 1_000_000 for earlier, later in itertools.pairwise(marks))
    first = {mark.stdout: mark.at for mark in reversed(marks)}
    for number, (before, after) in enumerate(itertools.pairwise(moments)):
        assert before < first[2 * number + 2] <= after
    assert (marks[-1].stdout, marks[-1].stderr) == (10, 4)
    assert marks[-1].at <= time.time_ns()


async def test_marks_can_be_read_in_parts(yard: Yard):
    attempt = await yard.python("import time\nfor i in range(5): print(i); time.sleep(0.02)")
    await yard.ended(attempt)
    log = yard.engine.log(attempt, MASTER)
    everything = log.marks()
    assert log.mark_count() == len(everything)
    assert log.marks(1, 2) == everything[1:3]
    assert log.marks(2) == everything[2:]
    assert log.marks(1000) == []


async def test_of_a_replica_that_never_was_there_is_nothing(bare_yard: Yard):
    log = bare_yard.engine.log((await bare_yard.run("true")).attempt, MASTER._replace(role="other"))
    assert (log.size(0), log.read(1, 0, 10), log.hole(0), log.marks(), log.mark_count()) == (
        0,
        b"",
        None,
        [],
        0,
    )


async def test_a_shell_may_write_to_its_own_streams_by_name(yard: Yard):
    end = await yard.run("sh", "-c", "echo out > /dev/stdout; echo err > /dev/stderr; cat /dev/stdin")
    assert end.code == 0
    assert (yard.out(end.attempt), yard.out(end.attempt, stream=1)) == ("out\n", "err\n")


async def test_in_the_sandbox_that_erases_nothing(boxed_yard: Yard):
    script = "for i in $(seq 100); do echo line $i; echo by name $i > /dev/stdout; done"
    end = await boxed_yard.run("sh", "-c", script)
    lines = boxed_yard.out(end.attempt).splitlines()
    wanted = [f"line {i}" for i in range(1, 101)] + [f"by name {i}" for i in range(1, 101)]
    assert sorted(lines) == sorted(wanted)


async def test_much_through_the_name_does_not_stall(boxed_yard: Yard):
    end = await boxed_yard.run("sh", "-c", "head -c 3000000 /dev/zero > /dev/stderr")
    assert end.code == 0
    assert boxed_yard.engine.log(end.attempt, MASTER).size(1) == 3_000_000


async def test_who_follows_is_woken(yard: Yard):
    attempt = await yard.python(
        "import sys\nfor line in range(3): print(line, flush=True)\nimport time; time.sleep(1000)"
    )
    seen = await yard.printed(attempt, "2\n")
    assert seen == "0\n1\n2\n"


async def test_the_end_wakes_who_follows(yard: Yard):
    attempt = await yard.start("sh", "-c", "sleep 0.1")
    async with asyncio.timeout(10):
        async for _ in yard.engine.follow(attempt):
            if any(getattr(report, "code", None) == 0 for report in yard.reports):
                break


async def test_a_log_that_grows_beyond_its_limit_loses_its_middle(place):
    async with Yard(place, sandbox="none", log_bytes=8 * MIB) as yard:
        program = """
import os, time
for number in range(400):
    os.write(1, b'%07d\\n' % number * 16384)
    time.sleep(0.001)
"""
        attempt = await yard.python(program)
        await yard.ended(attempt)
        log = yard.engine.log(attempt, MASTER)
        assert log.size(0) == 50 * MIB
        hole = log.hole(0)
        assert hole is not None
        assert hole[0] == MIB
        assert 2 * MIB <= log.size(0) - hole[1] <= 8 * MIB
        assert log.read(0, 0, 2 * MIB) == b"".join(b"%07d\n" % number * 16384 for number in range(8))
        assert log.read(0, MIB, 10) == b""
        assert log.read(0, log.size(0) - 8, 100) == b"0000399\n"
        assert (yard.paths.replica(attempt, MASTER) / "stdout").stat().st_blocks * 512 <= 10 * MIB
        told = [report for report in yard.reports if isinstance(report, Trimmed)]
        assert len(told) == 1
        assert "first MiB" in told[0].message


@pytest.mark.parametrize("sandbox", ["none", "bubblewrap"])
async def test_the_last_bytes_are_marked_before_the_end_is_told(place, sandbox: str):
    async with Yard(place, sandbox=sandbox) as yard:
        for _ in range(20):
            end = await yard.run("sh", "-c", "echo a; echo b >&2; echo c")
            (*_, last) = yard.engine.log(end.attempt, MASTER).marks()
            assert (last.stdout, last.stderr) == (4, 2)


async def test_who_begins_to_follow_just_as_it_prints_is_told(bare_yard: Yard):
    """Between the follower's first look and the keeper's hearing of it nothing may get lost."""
    for _ in range(40):
        attempt = await bare_yard.start("sh", "-c", "echo ready; exec sleep 1000")
        assert await bare_yard.printed(attempt, "ready") == "ready\n"
        await bare_yard.engine.stop(attempt, 5)
