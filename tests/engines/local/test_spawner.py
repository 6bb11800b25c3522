"""The process that starts sandboxes in private networks: jobs survive its end, and it never outlives the supervisor."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engines.local.harness import MASTER, EngineHarness, process_ended
from turnout.job import Attempt, Cause

WAIT = "import os; os.mkfifo('/workspace/go'); print('up', flush=True); open('/workspace/go').read(); os._exit(7)"


@pytest.fixture
async def private(base_dir: Path) -> AsyncIterator[EngineHarness]:
    async with EngineHarness(base_dir, sandbox="bubblewrap", network="private") as harness:
        yield harness


async def test_a_sandbox_is_started_by_the_spawner(private: EngineHarness) -> None:
    attempt = await private.python(WAIT)
    spawner = await _spawner_of(private, attempt)
    assert spawner != private.supervisor
    assert _parent(spawner) == private.supervisor
    assert await _let_end(private, attempt) == (Cause.EXIT, 7)


async def test_a_killed_sandbox_is_noticed(private: EngineHarness) -> None:
    attempt = await private.python(WAIT)
    await private.wait_for_output(attempt, "up")
    os.kill((await private.started(attempt)).pid, signal.SIGKILL)
    end = await private.ended(attempt)
    assert (end.code, end.signal) != (0, None)


async def test_the_spawner_has_no_file_of_the_gang(private: EngineHarness) -> None:
    """Otherwise a network would live on, and a reader of a program's pipe would wait for ever."""
    attempt = await private.python(WAIT)
    spawner = await _spawner_of(private, attempt)
    own = {os.readlink(f"/proc/{spawner}/fd/{name}") for name in os.listdir(f"/proc/{spawner}/fd")}
    network = os.readlink(f"/proc/{(await private.started(attempt)).pid}/ns/net")
    assert network not in {*own, os.readlink(f"/proc/{spawner}/ns/net")}
    assert not [path for path in own if str(attempt) in path]


async def test_jobs_outlive_the_spawner(private: EngineHarness) -> None:
    attempt = await private.python(WAIT)
    spawner = await _spawner_of(private, attempt)
    await _kill(spawner)
    assert (await private.run("sh", "-c", "exit 3")).code == 3
    assert await _let_end(private, attempt) == (Cause.EXIT, 7)


async def test_a_start_during_which_the_spawner_dies_happens_once(private: EngineHarness) -> None:
    attempt = await private.python(WAIT)
    spawner = await _spawner_of(private, attempt)
    os.kill(spawner, signal.SIGSTOP)
    other = await private.python("print('ran', flush=True); raise SystemExit(5)")
    await _kill(spawner)
    assert (await private.ended(other)).code == 5
    assert private.output(other).split() == ["ran"]
    assert await _let_end(private, attempt) == (Cause.EXIT, 7)


async def test_the_spawner_ends_with_the_supervisor(private: EngineHarness) -> None:
    attempt = await private.python(WAIT)
    pidfd = os.pidfd_open(await _spawner_of(private, attempt))
    await private.kill_supervisor()
    await process_ended(pidfd)
    assert await _let_end(private, attempt) == (Cause.EXIT, 7)
    assert (await private.run("sh", "-c", "exit 3")).code == 3


async def test_a_long_command_starts_too(private: EngineHarness) -> None:
    end = await private.run("sh", "-c", "exit ${#1}", "sh", "x" * 100_000)
    assert end.code == 100_000 % 256


async def test_a_program_that_is_missing_is_reported(private: EngineHarness) -> None:
    end = await private.run("/no/such/program")
    assert (end.cause, end.code) == (Cause.NOT_FOUND, 127)


async def _spawner_of(harness: EngineHarness, attempt: Attempt) -> int:
    await harness.wait_for_output(attempt, "up")
    return _parent((await harness.started(attempt)).pid)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def _kill(pid: int) -> None:
    pidfd = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    await process_ended(pidfd)


async def _let_end(harness: EngineHarness, attempt: Attempt) -> tuple[Cause, int | None]:
    go = harness.paths.workspace(attempt, MASTER) / "go"
    await asyncio.to_thread(go.write_text, "\n")
    end = await harness.ended(attempt)
    return end.cause, end.code
