"""Shells in replicas: what they see, and that they end with what they are in."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.engines.local.yard import MASTER, PATIENCE, Yard, alive
from turnout.errors import WrongState
from turnout.job import Attempt, Mount, Resources, Size, Terminal
from turnout.runner.keeper import processes


async def begin(yard: Yard, **details: object) -> Attempt:
    attempt = await yard.start("sh", "-c", "echo up; exec sleep 1000", **details)
    await yard.printed(attempt, "up")
    return attempt


@asynccontextmanager
async def shell(yard: Yard, attempt: Attempt, size: Size = Size(100, 30)) -> AsyncIterator[Terminal]:  # noqa: B008
    terminal = await yard.engine.shell(attempt, MASTER, size)
    try:
        yield terminal
    finally:
        terminal.close()


async def ask(terminal: Terminal, command: str) -> list[str]:
    """The lines that a command printed."""
    # What is typed is echoed: the end is spelt in a way that only its output has.
    await terminal.write(f"echo beg''un; {command}; echo do''ne\n".encode())
    seen = ""
    async with asyncio.timeout(PATIENCE):
        while "done\r\n" not in seen:
            data = await terminal.read()
            assert data, f"it ended: {seen!r}"
            seen += data.decode()
    return seen.partition("begun\r\n")[2].partition("done\r\n")[0].split()


async def rest(terminal: Terminal) -> str:
    seen = b""
    async with asyncio.timeout(PATIENCE):
        while data := await terminal.read():
            seen += data
    return seen.decode()


async def test_it_is_in_the_replicas_own_surroundings(yard: Yard) -> None:
    attempt = await begin(yard, env={"MINE": "a value"})
    async with shell(yard, attempt) as terminal:
        program = "$(pgrep -o sleep)" if yard.sandbox != "none" else str((await yard.started(attempt)).pid)
        assert await ask(terminal, "echo $MINE $TURNOUT_REPLICA") == ["a", "value", f"{attempt}/master-0"]
        assert await ask(terminal, f"[ $PWD = $(readlink /proc/{program}/cwd) ] && echo same") == ["same"]
        assert await ask(terminal, "id -u; stat -c %u /proc/$$") == [str(uid(yard, attempt))] * 2
        if yard.sandbox != "none":
            assert await ask(terminal, "ps -e -o comm=") == ["bwrap", "sleep", "bash", "ps"]
            same = "for n in user mnt pid ipc uts; do readlink /proc/$$/ns/$n; done | sort -u | wc -l"
            theirs = f"for n in user mnt pid ipc uts; do readlink /proc/$$/ns/$n /proc/{program}/ns/$n; done"
            assert await ask(terminal, same) == ["5"]
            assert await ask(terminal, f"{{ {theirs}; }} | sort -u | wc -l") == ["5"]


def uid(yard: Yard, attempt: Attempt) -> int:
    return (yard.paths.replica(attempt, MASTER) / "work").stat().st_uid


@pytest.mark.parametrize("details", [{}, {"user": 0}], ids=["usual", "root inside"])
async def test_it_has_no_privileges_in_the_sandbox(boxed_yard: Yard, details: dict[str, int]) -> None:
    attempt = await begin(boxed_yard, **details)
    async with shell(boxed_yard, attempt) as terminal:
        found = await ask(terminal, "grep -E '^(Cap|NoNew)' /proc/self/status")
        assert found[1::2] == ["0" * 16] * 5 + ["1"]
        assert await ask(terminal, "mount -t tmpfs none /tmp 2>/dev/null || echo refused") == ["refused"]


async def test_it_sees_the_mounts(yard: Yard, place: Path) -> None:
    (place / "shared").mkdir()
    (place / "shared/inside").write_text("x")
    attempt = await begin(yard, mounts=(Mount(f"file://{place}/shared", "/data/there"),))
    async with shell(yard, attempt) as terminal:
        assert await ask(terminal, "ls; ls $TURNOUT_ROOT/data/there") == ["inside", "inside"]


async def test_it_counts_towards_the_replicas_limits(yard: Yard) -> None:
    attempt = await begin(yard, resources=Resources(cpu=1, memory=64 << 20))
    async with shell(yard, attempt) as terminal:
        groups = await ask(terminal, "cat /proc/self/cgroup | grep -E 'memory|^0'")
    pid = (await yard.started(attempt)).pid
    assert set(groups) <= set(Path(f"/proc/{pid}/cgroup").read_text().split())


async def test_it_is_a_terminal_with_a_size(yard: Yard) -> None:
    attempt = await begin(yard)
    async with shell(yard, attempt, Size(100, 30)) as terminal:
        assert await ask(terminal, "stty size; echo $TERM") == ["30", "100", "xterm-256color"]
        terminal.resize(Size(120, 40))
        assert await ask(terminal, "stty size") == ["40", "120"]
        terminal.resize(Size(0, 10**9))
        assert await ask(terminal, "stty size") == ["1000", "1"]


async def test_control_c_reaches_what_runs_in_it(yard: Yard) -> None:
    attempt = await begin(yard)
    async with shell(yard, attempt) as terminal:
        await terminal.write(b"sh -c \"echo wai''ting; exec sleep 999\"\n")
        await read_until(terminal, b"waiting\r\n")
        await terminal.write(b"\x03")
        await read_until(terminal, b"^C")
        await terminal.write(b"code=$?\n")
        assert await ask(terminal, "echo $code") == ["130"]


async def test_how_it_exited_is_told(yard: Yard) -> None:
    attempt = await begin(yard)
    async with shell(yard, attempt) as terminal:
        await terminal.write(b"exit 3\n")
        await rest(terminal)
        assert await terminal.code() == 3


async def test_it_ends_with_the_replica(yard: Yard) -> None:
    attempt = await begin(yard)
    async with shell(yard, attempt) as terminal:
        await ask(terminal, "nohup sleep 98765 >/dev/null 2>&1 & true")
        await yard.engine.stop(attempt, 0)
        await rest(terminal)
        assert await terminal.code() == 137
    await yard.ended(attempt)
    assert not alive("98765")


async def test_the_shell_ends_when_nobody_looks_any_more(yard: Yard) -> None:
    attempt = await begin(yard)
    async with shell(yard, attempt) as terminal:
        await terminal.write(b"sh -c \"echo beg''un; exec sleep 87654\"\n")
        await read_until(terminal, b"begun\r\n")
        [pidfd] = [os.pidfd_open(pid) for pid in alive("87654") if pid in marked(attempt)][-1:]
    await gone(pidfd)
    assert alive("sleep\x001000"), "the program goes on"


def marked(attempt: Attempt) -> list[int]:
    return processes.marked().get(f"{attempt}/master-0", [])


async def gone(pidfd: int) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(pidfd, ended.set)
    try:
        async with asyncio.timeout(PATIENCE):
            await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


async def test_one_that_an_earlier_keeper_started(yard: Yard) -> None:
    attempt = await begin(yard, env={"MINE": "kept"})
    await yard.kill_keeper()
    async with shell(yard, attempt) as terminal:
        assert await ask(terminal, "echo $MINE") == ["kept"]
        await yard.engine.stop(attempt, 0)
        await rest(terminal)
        assert await terminal.code() == 137


async def read_until(terminal: Terminal, text: bytes) -> None:
    seen = b""
    async with asyncio.timeout(PATIENCE):
        while text not in seen:
            data = await terminal.read()
            assert data, "it ended"
            seen = seen[-len(text) :] + data


async def test_much_goes_through_in_both_directions(yard: Yard) -> None:
    attempt = await begin(yard)
    async with shell(yard, attempt) as terminal:
        await terminal.write(b"stty raw -echo; echo rea''dy; head -c 2000000 | tee >(wc -c >&2)\n")
        await read_until(terminal, b"ready")
        writing = asyncio.create_task(terminal.write(b"x" * 2_000_000))
        await read_until(terminal, b"2000000")
        await writing


async def test_who_does_not_read_is_waited_for(yard: Yard) -> None:
    attempt = await begin(yard)
    async with shell(yard, attempt) as terminal:
        await terminal.write(b"stty raw -echo; echo rea''dy; sleep 1000\n")
        await read_until(terminal, b"ready")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await terminal.write(b"y" * 10_000_000)


async def test_no_shell_where_nothing_runs(yard: Yard) -> None:
    attempt = await begin(yard)
    await yard.engine.stop(attempt, 0)
    await yard.ended(attempt)
    with pytest.raises(WrongState, match="not running"):
        await yard.engine.shell(attempt, MASTER, Size(80, 24))
    with pytest.raises(WrongState, match="not running"):
        await yard.engine.shell(Attempt(999, 1), MASTER, Size(80, 24))


async def test_no_descriptor_is_left_open(yard: Yard) -> None:
    attempt = await begin(yard)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        async with shell(yard, attempt) as terminal:
            await ask(terminal, "true")
    assert len(os.listdir("/proc/self/fd")) == before
