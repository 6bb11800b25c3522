"""A replica whose workspace and /tmp exceed the disk limit is ended for that reason."""

import os
import re
import select
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engines.local.harness import EngineHarness
from turnout.job import Cause, Ended, Policy, Program, ReplicaName, Resources, Role
from turnout.runner.supervisor.disk.remove import remove

MIB = 1 << 20
LIMIT = 16 * MIB
FILL = """
import os, sys, time
home, tmp = os.environ["HOME"], os.environ.get("TMPDIR", "/tmp")
def fill(path, mib):
    with open(path, "wb") as file:
        for _ in range(mib): file.write(os.urandom(1 << 20))
"""


@pytest.fixture(params=["none", "bubblewrap"])
async def limited(base_dir: Path, request: pytest.FixtureRequest) -> AsyncIterator[EngineHarness]:
    async with EngineHarness(base_dir, sandbox=request.param, disk=LIMIT) as one:
        yield one


def assert_over(end: Ended) -> None:
    match = re.fullmatch(r"used ([0-9.]+) MB of 16 MB", end.message)
    assert (end.cause, bool(match)) == (Cause.DISK_LIMIT, True)
    assert match
    assert 16 < float(match[1]) < 48


async def test_workspace_and_tmp_count_together(limited: EngineHarness):
    program = FILL + 'fill(home + "/a", 12); fill(tmp + "/b", 12); time.sleep(1000)'
    end = await limited.ended(await limited.python(program))
    assert_over(end)
    assert end.signal in (signal.SIGTERM, signal.SIGKILL)


@pytest.mark.parametrize("way", ["open", "daemon", "tmpfile"])
async def test_deleted_files_that_are_still_open_count(limited: EngineHarness, way: str):
    hold = {
        "open": 'file = open(home + "/a", "wb"); os.unlink(home + "/a")',
        "daemon": """
if os.fork(): time.sleep(1000)
os.setsid()
if os.fork(): os._exit(0)
file = open(tmp + "/a", "wb"); os.unlink(tmp + "/a")
""",
        "tmpfile": 'file = os.fdopen(os.open(home, os.O_TMPFILE | os.O_WRONLY), "wb")',
    }[way]
    program = (
        FILL + hold + "\nfor _ in range(24): file.write(os.urandom(1 << 20)); file.flush()\ntime.sleep(1000)"
    )
    assert_over(await limited.ended(await limited.python(program)))


async def test_a_deleted_file_outside_the_workspace_does_not_count(limited: EngineHarness, base_dir: Path):
    """Such as an object of a bucket that was replaced."""
    shared = base_dir / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    program = (
        FILL
        + f"""
path = {str(shared)!r} + "/a"
try: file = open(path, "wb")
except OSError: file = open(home + "/limited", "wb"); path = home + "/limited"
os.unlink(path)
if not path.startswith(home): file.write(os.urandom(24 << 20)); file.flush()
print("ready", flush=True)
time.sleep(1000)
"""
    )
    modest = await limited.python(program)
    await limited.wait_for_output(modest, "ready")
    for _ in range(2):
        greedy = await limited.python(FILL + 'fill(home + "/a", 40); time.sleep(1000)')
        assert (await limited.ended(greedy)).cause == Cause.DISK_LIMIT
    await limited.engine.stop(modest, 0)
    assert (await limited.ended(modest)).cause == Cause.STOPPED


async def test_scratch_directories_count(limited: EngineHarness):
    program = FILL + 'fill(os.environ["TURNOUT_ROOT"] + "/cache/a", 20); time.sleep(1000)'
    end = await limited.ended(await limited.python(program, scratch=("/cache",)))
    assert end.cause == Cause.DISK_LIMIT


async def test_sparse_files_and_links_do_not_exceed_the_limit(limited: EngineHarness):
    """It is measured several times while it waits for the other job's end."""
    program = (
        FILL
        + """
fill(home + "/a", 10)
for number in range(5): os.link(home + "/a", f"{home}/{number}")
with open(home + "/sparse", "wb") as file: file.truncate(1 << 40)
os.symlink("/usr", home + "/usr")
print("ready", flush=True)
time.sleep(1000)
"""
    )
    modest = await limited.python(program)
    await limited.wait_for_output(modest, "ready")
    for _ in range(2):
        greedy = await limited.python(FILL + 'fill(home + "/a", 40); time.sleep(1000)')
        assert (await limited.ended(greedy)).cause == Cause.DISK_LIMIT
    await limited.engine.stop(modest, 0)
    assert (await limited.ended(modest)).cause == Cause.STOPPED


async def test_deep_trees_and_unreadable_directories_count(limited: EngineHarness):
    program = (
        FILL
        + """
os.chdir(home)
for _ in range(3000):
    os.mkdir("d"); os.chdir("d")
fill("deep", 10)
os.mkdir(home + "/closed")
fill(home + "/closed/a", 10)
os.chmod(home + "/closed", 0)
time.sleep(1000)
"""
    )
    end = await limited.ended(await limited.python(program))
    assert_over(end)
    # The fixture that made the directory cannot remove it.
    remove(str(limited.paths.replica(end.attempt, end.replica) / "space"))


async def test_a_replica_that_ignores_the_signal_and_keeps_writing_is_killed_at_once(limited: EngineHarness):
    program = (
        """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
"""
        + FILL
        + 'fill(home + "/a", 17); fill(home + "/b", 30); time.sleep(1000)'
    )
    end = await limited.ended(await limited.python(program, policy=Policy(grace=1000)))
    assert (end.cause, end.signal) == (Cause.DISK_LIMIT, signal.SIGKILL)


async def test_a_role_can_have_a_lower_limit(limited: EngineHarness):
    program = Program(
        ("python", "-c", FILL + 'fill(home + "/a", 6); print("full", flush=True); time.sleep(1000)')
    )
    roles = (
        Role("master", program, leads=True, task_type="chief"),
        Role("worker", program, resources=Resources(disk=4 * MIB)),
    )
    attempt = await limited.start(roles=roles)
    end = await limited.ended(attempt, ReplicaName("worker", 0))
    assert (end.cause, end.message) == (Cause.DISK_LIMIT, "used 6 MB of 4 MB")
    await limited.wait_for_output(attempt, "full")
    await limited.engine.stop(attempt, 0)
    assert (await limited.ended(attempt)).cause == Cause.STOPPED


async def test_the_limit_holds_without_the_service(limited: EngineHarness):
    await limited.python("import time; time.sleep(1000)")
    program = FILL + 'sys.stdout.flush(); time.sleep(0.5); fill(home + "/a", 40); time.sleep(1000)'
    attempt = await limited.python(program)
    started = await limited.started(attempt)
    await limited.disconnect()
    with open(os.pidfd_open(started.pid), "rb") as pidfd:
        assert select.select([pidfd], [], [], 30)[0]
    await limited.reconnect()
    end = await limited.ended(attempt)
    assert_over(end)


@pytest.mark.slow
async def test_the_next_supervisor_knows_the_limit_and_the_reason_of_an_end(limited: EngineHarness):
    slow = (
        """
import signal
signal.signal(signal.SIGTERM, lambda *_: print("got TERM", flush=True))
"""
        + FILL
        + 'fill(home + "/a", 17); print("full", flush=True)\nwhile True: time.sleep(1)'
    )
    ending = await limited.python(slow, policy=Policy(grace=6))
    later = await limited.python(
        FILL + 'fill(home + "/a", 1); \n'
        'print("ready", flush=True)\n'
        'while not os.path.exists(home + "/go"): time.sleep(0.05)\n'
        'fill(home + "/b", 30); time.sleep(1000)'
    )
    await limited.wait_for_output(later, "ready")
    await limited.wait_for_output(ending, "got TERM")
    await limited.kill_supervisor()
    (limited.paths.replica(later, ReplicaName("master", 0)) / "space/work/go").touch()
    assert_over(await limited.ended(ending))
    assert_over(await limited.ended(later))


async def test_a_killed_measuring_process_is_replaced(limited: EngineHarness):
    """It runs only while there is something to measure."""
    waiting = await limited.python("import time; time.sleep(1000)")
    first = await limited.python(FILL + 'fill(home + "/a", 40); time.sleep(1000)')
    assert (await limited.ended(first)).cause == Cause.DISK_LIMIT
    (measurer,) = measurers(limited)
    os.kill(measurer, signal.SIGKILL)
    second = await limited.python(FILL + 'fill(home + "/a", 40); time.sleep(1000)')
    assert (await limited.ended(second)).cause == Cause.DISK_LIMIT
    assert measurer not in measurers(limited)
    await limited.engine.stop(waiting, 0)
    await limited.ended(waiting)


def measurers(harness: EngineHarness) -> list[int]:
    """Children of the supervisor with its command line and the lower priority of a process that measures."""
    children = Path(f"/proc/{harness.supervisor}/task/{harness.supervisor}/children").read_text().split()
    command = _command(harness.supervisor)
    return [pid for pid in map(int, children) if _command(pid) == command and _nice(pid) > 0]


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _nice(pid: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, pid)


async def test_nothing_is_measured_without_a_limit(base_dir: Path):
    async with EngineHarness(base_dir, sandbox="none", disk=0) as harness:
        attempt = await harness.python(
            FILL + 'fill(home + "/a", 40); print("full", flush=True); time.sleep(2)'
        )
        assert (await harness.ended(attempt)).cause == Cause.EXIT
        assert measurers(harness) == []
