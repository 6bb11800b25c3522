"""Shells in replicas: what they see, and that they end with their replica."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.engines.local.harness import MASTER, TIMEOUT, EngineHarness, process_ended, running_processes
from turnout.errors import WrongState
from turnout.job import Attempt, Mount, Resources, Size, Terminal
from turnout.runner.supervisor import procfs


async def start_sleeping(harness: EngineHarness, **details: object) -> Attempt:
    attempt = await harness.start("sh", "-c", "echo up; exec sleep 1000", **details)
    await harness.wait_for_output(attempt, "up")
    return attempt


@asynccontextmanager
async def shell(
    harness: EngineHarness,
    attempt: Attempt,
    size: Size = Size(100, 30),  # noqa: B008
) -> AsyncIterator[Terminal]:
    terminal = await harness.engine.shell(attempt, MASTER, size)
    try:
        yield terminal
    finally:
        terminal.close()


async def run_command(terminal: Terminal, command: str) -> list[str]:
    """The lines that a command printed."""
    # The terminal echoes what is typed, so the end marker is spelt differently in the command and in its output.
    await terminal.write(f"echo beg''un; {command}; echo do''ne\n".encode())
    seen = ""
    async with asyncio.timeout(TIMEOUT):
        while "done\r\n" not in seen:
            data = await terminal.read()
            assert data, f"it ended: {seen!r}"
            seen += data.decode()
    return seen.partition("begun\r\n")[2].partition("done\r\n")[0].split()


async def read_rest(terminal: Terminal) -> str:
    seen = b""
    async with asyncio.timeout(TIMEOUT):
        while data := await terminal.read():
            seen += data
    return seen.decode()


async def test_a_shell_is_in_the_environment_of_its_replica(harness: EngineHarness) -> None:
    attempt = await start_sleeping(harness, env={"MINE": "a value"})
    async with shell(harness, attempt) as terminal:
        program = (
            "$(pgrep -o sleep)" if harness.sandbox != "none" else str((await harness.started(attempt)).pid)
        )
        assert await run_command(terminal, "echo $MINE $TURNOUT_REPLICA") == [
            "a",
            "value",
            f"{attempt}/master-0",
        ]
        assert await run_command(terminal, f"[ $PWD = $(readlink /proc/{program}/cwd) ] && echo same") == [
            "same"
        ]
        assert await run_command(terminal, "id -u; stat -c %u /proc/$$") == [str(uid(harness, attempt))] * 2
        if harness.sandbox != "none":
            assert await run_command(terminal, "ps -e -o comm=") == ["bwrap", "sleep", "bash", "ps"]
            same = "for n in user mnt pid ipc uts; do readlink /proc/$$/ns/$n; done | sort -u | wc -l"
            theirs = f"for n in user mnt pid ipc uts; do readlink /proc/$$/ns/$n /proc/{program}/ns/$n; done"
            assert await run_command(terminal, same) == ["5"]
            assert await run_command(terminal, f"{{ {theirs}; }} | sort -u | wc -l") == ["5"]


def uid(harness: EngineHarness, attempt: Attempt) -> int:
    return harness.paths.workspace(attempt, MASTER).stat().st_uid


@pytest.mark.parametrize("details", [{}, {"user": 0}], ids=["usual", "root inside"])
async def test_a_shell_has_no_privileges_in_the_sandbox(
    sandboxed: EngineHarness, details: dict[str, int]
) -> None:
    attempt = await start_sleeping(sandboxed, **details)
    async with shell(sandboxed, attempt) as terminal:
        found = await run_command(terminal, "grep -E '^(Cap|NoNew)' /proc/self/status")
        assert found[1::2] == ["0" * 16] * 5 + ["1"]
        assert await run_command(terminal, "mount -t tmpfs none /tmp 2>/dev/null || echo refused") == [
            "refused"
        ]


async def test_a_shell_sees_the_mounts(harness: EngineHarness, base_dir: Path) -> None:
    (base_dir / "shared").mkdir()
    (base_dir / "shared/inside").write_text("x")
    attempt = await start_sleeping(harness, mounts=(Mount(f"file://{base_dir}/shared", "/data/there"),))
    async with shell(harness, attempt) as terminal:
        assert await run_command(terminal, "ls; ls $TURNOUT_ROOT/data/there") == ["inside", "inside"]


async def test_a_shell_counts_towards_the_replicas_limits(harness: EngineHarness) -> None:
    attempt = await start_sleeping(harness, resources=Resources.of(cores=1, memory=64 << 20))
    async with shell(harness, attempt) as terminal:
        groups = await run_command(terminal, "cat /proc/self/cgroup | grep -E 'memory|^0'")
    pid = (await harness.started(attempt)).pid
    assert set(groups) <= set(Path(f"/proc/{pid}/cgroup").read_text().split())


async def test_a_shell_has_a_terminal_with_a_size(harness: EngineHarness) -> None:
    attempt = await start_sleeping(harness)
    async with shell(harness, attempt, Size(100, 30)) as terminal:
        assert await run_command(terminal, "stty size; echo $TERM") == ["30", "100", "xterm-256color"]
        terminal.resize(Size(120, 40))
        assert await run_command(terminal, "stty size") == ["40", "120"]
        terminal.resize(Size(0, 10**9))
        assert await run_command(terminal, "stty size") == ["1000", "1"]


async def test_control_c_interrupts_the_command_in_the_shell(harness: EngineHarness) -> None:
    attempt = await start_sleeping(harness)
    async with shell(harness, attempt) as terminal:
        await terminal.write(b"sh -c \"echo wai''ting; exec sleep 999\"\n")
        await read_until(terminal, b"waiting\r\n")
        await terminal.write(b"\x03")
        await read_until(terminal, b"^C")
        await terminal.write(b"code=$?\n")
        assert await run_command(terminal, "echo $code") == ["130"]


async def test_the_exit_code_of_a_shell_is_reported(harness: EngineHarness) -> None:
    attempt = await start_sleeping(harness)
    async with shell(harness, attempt) as terminal:
        await terminal.write(b"exit 3\n")
        await read_rest(terminal)
        assert await terminal.code() == 3


async def test_a_shell_ends_with_its_replica(harness: EngineHarness) -> None:
    attempt = await start_sleeping(harness)
    async with shell(harness, attempt) as terminal:
        await run_command(terminal, "nohup sleep 98765 >/dev/null 2>&1 & true")
        await harness.engine.stop(attempt, 0)
        await read_rest(terminal)
        assert await terminal.code() == 137
    await harness.ended(attempt)
    assert not running_processes("98765")


async def test_a_shell_ends_when_its_terminal_is_closed(harness: EngineHarness) -> None:
    attempt = await start_sleeping(harness)
    async with shell(harness, attempt) as terminal:
        await terminal.write(b"sh -c \"echo beg''un; exec sleep 87654\"\n")
        await read_until(terminal, b"begun\r\n")
        # During its exec a process has neither a command line nor an environment.
        for _ in range(1000):
            pids = [pid for pid in running_processes("87654") if pid in marked(attempt)]
            if pids:
                break
            await asyncio.sleep(0.01)
        pidfd = os.pidfd_open(pids[-1])
    await process_ended(pidfd)
    assert running_processes("sleep\x001000"), "the program goes on"


def marked(attempt: Attempt) -> list[int]:
    return procfs.marked_processes().get(f"{attempt}/master-0", [])


async def test_a_shell_works_in_a_replica_of_an_earlier_supervisor(harness: EngineHarness) -> None:
    attempt = await start_sleeping(harness, env={"MINE": "kept"})
    await harness.kill_supervisor()
    async with shell(harness, attempt) as terminal:
        assert await run_command(terminal, "echo $MINE") == ["kept"]
        await harness.engine.stop(attempt, 0)
        await read_rest(terminal)
        assert await terminal.code() == 137


async def read_until(terminal: Terminal, text: bytes) -> None:
    seen = b""
    async with asyncio.timeout(TIMEOUT):
        while text not in seen:
            data = await terminal.read()
            assert data, "it ended"
            seen = seen[-len(text) :] + data


async def test_a_terminal_carries_much_data_in_both_directions(harness: EngineHarness) -> None:
    attempt = await start_sleeping(harness)
    async with shell(harness, attempt) as terminal:
        await terminal.write(b"stty raw -echo; echo rea''dy; head -c 2000000 | tee >(wc -c >&2)\n")
        await read_until(terminal, b"ready")
        writing = asyncio.create_task(terminal.write(b"x" * 2_000_000))
        await read_until(terminal, b"2000000")
        await writing


async def test_a_shell_waits_for_a_slow_reader(harness: EngineHarness) -> None:
    attempt = await start_sleeping(harness)
    async with shell(harness, attempt) as terminal:
        await terminal.write(b"stty raw -echo; echo rea''dy; sleep 1000\n")
        await read_until(terminal, b"ready")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await terminal.write(b"y" * 10_000_000)


async def test_a_replica_that_does_not_run_has_no_shell(harness: EngineHarness) -> None:
    attempt = await start_sleeping(harness)
    await harness.engine.stop(attempt, 0)
    await harness.ended(attempt)
    with pytest.raises(WrongState, match="not running"):
        await harness.engine.shell(attempt, MASTER, Size(80, 24))
    with pytest.raises(WrongState, match="not running"):
        await harness.engine.shell(Attempt(999, 1), MASTER, Size(80, 24))


async def test_no_descriptor_is_left_open(harness: EngineHarness) -> None:
    attempt = await start_sleeping(harness)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        async with shell(harness, attempt) as terminal:
            await run_command(terminal, "true")
    assert len(os.listdir("/proc/self/fd")) == before
