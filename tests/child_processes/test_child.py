"""Child processes: one at a time, every request gets a reply or an error, and none outlives the service."""

import asyncio
import contextlib
import os
import pwd
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import psutil
import pytest
import uvloop

from tests.child_processes.echo import Greeting
from tests.running import ROOT, children_with, python_path
from turnout.child_processes.bootstrap import Identity, Reply
from turnout.child_processes.child import Child, ChildDied, ChildProgram, Closed

ECHO = ChildProgram("echo", "tests.child_processes.echo", sources=str(ROOT), cancels=True)
NOBODY = pwd.getpwnam("nobody")
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


class EchoReply(Reply):
    pid: int = 0
    text: str = ""
    progress: bool = False

    @property
    def last(self) -> bool:
        return not self.progress


def child(setup: Greeting | None = None, **more: object) -> Child[EchoReply]:
    return Child(ECHO, EchoReply, setup, **{"pauses": (0.0,), **more})  # pyright: ignore[reportArgumentType]


@pytest.fixture
async def echo() -> AsyncIterator[Child[EchoReply]]:
    one = child()
    yield one
    await one.close()


def alive() -> list[psutil.Process]:
    return children_with(os.getpid(), "tests.child_processes.echo")


async def until(condition: Callable[[], object]) -> None:
    """Polls, for conditions without an event, such as the process table."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


async def test_each_request_gets_its_own_reply(echo: Child[EchoReply]):
    said = await asyncio.gather(*(echo.request({"text": str(number)}) for number in range(50)))
    assert [one.text for one in said] == [str(number) for number in range(50)]
    assert {one.pid for one in said} == {echo.pid}


async def test_prints_are_not_replies_and_progress_is_not_the_last_reply(echo: Child[EchoReply]):
    assert (await echo.request({"do": "print"})).text == "answered"
    assert (await echo.request({"do": "progress"})).text == "whole"


async def test_its_death_fails_all_open_requests(echo: Child[EchoReply]):
    waiting = [asyncio.create_task(echo.request({"do": "silence"})) for _ in range(5)]
    waiting.append(asyncio.create_task(echo.request({"do": "die"})))
    for result in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(result, ChildDied)
        assert "was killed by SIGKILL" in result.message
    assert (await echo.request({"text": "back"})).text == "back"


async def test_a_request_is_retried_as_often_as_requested(echo: Child[EchoReply]):
    with pytest.raises(ChildDied, match="the echo ended with 7"):
        await echo.request({"do": "exit", "text": "7"}, tries=3)


@pytest.mark.parametrize("what", ["garbage", "long"])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_an_invalid_reply_kills_the_process(what: str, loop: Callable[[], asyncio.AbstractEventLoop]):
    async def run() -> None:
        one = child()
        async with asyncio.timeout(30):
            other = asyncio.create_task(one.request({"do": "silence"}))
            with pytest.raises(ChildDied):
                await one.request({"do": what})
            with pytest.raises(ChildDied):
                await other
            assert (await one.request({"text": "next"})).text == "next"
            await one.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


async def test_a_late_reply_of_a_predecessor_is_ignored(echo: Child[EchoReply]):
    """Requests with the same number to two processes must not be confused."""
    first = asyncio.create_task(echo.request({"do": "silence"}))
    await until(lambda: echo.pid)
    first.cancel()
    (process,) = alive()
    process.kill()
    said = await asyncio.gather(*(echo.request({"text": f"{n}"}, tries=2) for n in range(9)))
    assert [one.text for one in said] == [f"{n}" for n in range(9)]
    assert {one.pid for one in said} == {echo.pid}
    assert echo.pid != process.pid


async def test_a_cancelled_request_is_cancelled_in_the_child(echo: Child[EchoReply]):
    waiting = asyncio.create_task(echo.request({"do": "silence"}))
    await until(lambda: echo.pid)
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    assert (await echo.request({"text": "after"})).text == "after"


async def test_never_two_at_once_whatever_happens():
    """Requests, kills, idle ends and cancellations, all at random."""
    one = child(idle=0.01)
    chance = random.Random(7)
    most = 0

    async def ask(number: int) -> str:
        await asyncio.sleep(chance.random() * 2)
        async with asyncio.timeout(30):
            return (await one.request({"text": str(number)}, tries=50)).text

    asking = [asyncio.create_task(ask(number)) for number in range(300)]
    while not all(task.done() for task in asking):
        most = max(most, len(alive()))
        for process in alive():
            if chance.random() < 0.2:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        chance.choice(asking).cancel()
        await asyncio.sleep(0.02)
    for number, task in enumerate(asking):
        assert task.cancelled() or task.result() == str(number)
    assert most == 1
    await one.close()
    assert alive() == []


async def test_an_idle_one_ends_and_comes_back(tmp_path: Path):
    log = tmp_path / "log"
    one = child(Greeting(log=str(log)), idle=0.05, grace=20)
    first = (await one.request({})).pid
    await until(lambda: one.pid is None)
    assert alive() == []
    second = (await one.request({})).pid
    await one.close()
    assert log.read_text().split() == [f"+{first}", f"-{first}", f"+{second}", f"-{second}"]


async def test_a_stopped_one_does_not_hold_up_its_successor():
    one = child(idle=0.01, grace=0.1)
    first = (await one.request({})).pid
    os.kill(first, signal.SIGSTOP)
    await asyncio.sleep(0.05)
    async with asyncio.timeout(30):
        assert (await one.request({})).pid != first
    assert not psutil.pid_exists(first)
    await one.close()


async def test_close_kills_a_stubborn_process_and_fails_open_requests():
    one = child(Greeting(stubborn=True), grace=0.1)
    pid = (await one.request({})).pid
    waiting = asyncio.create_task(one.request({"do": "silence"}, tries=5))
    await asyncio.sleep(0)
    await one.close()
    with pytest.raises(Closed):
        await waiting
    assert not psutil.pid_exists(pid)
    with pytest.raises(Closed):
        await one.request({})
    assert alive() == []


@pytest.mark.parametrize("moment", [0, 0.001, 0.02, 0.2])
async def test_close_while_it_is_being_started_leaves_none(moment: float):
    one = child(pauses=(0.0, 0.0, 60.0))
    waiting = [asyncio.create_task(one.request({"do": "die"}, tries=99)) for _ in range(3)]
    await asyncio.sleep(moment)
    async with asyncio.timeout(30):
        await one.close()
        for result in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(result, Closed)
    assert alive() == []


async def test_a_process_started_by_a_cancelled_request_serves_the_next():
    one = child()
    for pause in (0, 0.0005, 0.001, 0.002, 0.005):
        waiting = asyncio.create_task(one.request({}))
        await asyncio.sleep(pause)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert len(alive()) <= 1
    said = await one.request({})
    assert [process.pid for process in alive()] == [said.pid]
    await one.close()


async def test_pauses_grow_with_each_death_and_end_with_an_answer(monkeypatch: pytest.MonkeyPatch):
    pauses: list[float] = []
    one = child(pauses=(0.01, 0.02, 0.03))
    real = asyncio.timeout
    module = sys.modules["turnout.child_processes.child"]

    def noted(delay: float) -> asyncio.Timeout:
        if delay in (0.01, 0.02, 0.03):
            pauses.append(delay)
        return real(delay)

    monkeypatch.setattr(module.asyncio, "timeout", noted)
    with pytest.raises(ChildDied):
        await one.request({"do": "die"}, tries=5)
    await one.request({})
    with pytest.raises(ChildDied):
        await one.request({"do": "die"}, tries=2)
    assert pauses == [0.01, 0.02, 0.03, 0.03, 0.03, 0.01]
    await one.close()


async def test_keep_restarts_it():
    one = child()
    keeping = asyncio.create_task(one.keep_running())
    await until(lambda: one.pid)
    first = one.pid
    assert first
    os.kill(first, signal.SIGKILL)
    await until(lambda: one.pid not in (None, first))
    await one.close()
    async with asyncio.timeout(30):
        await keeping
    assert alive() == []


async def test_a_process_that_cannot_be_started_raises_child_died(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    with pytest.raises(ChildDied, match="the echo cannot be started: No such file or directory"):
        await child().request({}, tries=2)


async def test_memory_is_limited():
    one = child(Greeting(memory=200 << 20))
    assert (await one.request({"do": "memory", "text": str(50 << 20)})).text.startswith("got")
    assert (await one.request({"do": "memory", "text": str(400 << 20)})).text == "no memory"
    await one.close()


@AS_ROOT
async def test_two_of_one_role_as_different_users():
    users = [Identity(NOBODY.pw_uid, NOBODY.pw_gid, (44,)), Identity(61234, 61235)]
    both = [child(identity=who) for who in users]
    said = await asyncio.gather(*(one.request({"do": "rights"}) for one in both))
    for one, who in zip(said, users, strict=True):
        assert one.text == f"{(who.uid,) * 3} {(who.gid,) * 3} {list(who.groups)}"
    await asyncio.gather(*(one.close() for one in both))


LATE = """
from turnout.child_processes.bootstrap import Reply, Setup, drop_privileges, read_setup, reply
import pack

class Said(Reply):
    text: str = ""

def main():
    drop_privileges(read_setup(Setup))
    import alone, pack.late
    reply(Said(1, alone.NAME + pack.late.NAME))
    input()
"""


@AS_ROOT
@pytest.mark.parametrize("mode", [0o755, 0o700])
async def test_modules_in_a_closed_directory_can_be_imported_by_another_user(tmp_path: Path, mode: int):
    """Such as those of a Python that is installed below /root."""
    closed = tmp_path / "closed"
    (closed / "sources" / "pack").mkdir(parents=True)
    (closed / "sources" / "early.py").write_text(LATE)
    (closed / "sources" / "alone.py").write_text("NAME = 'alone '")
    (closed / "sources" / "pack" / "__init__.py").touch()
    (closed / "sources" / "pack" / "late.py").write_text("NAME = 'late'")
    closed.chmod(mode)
    program = ChildProgram("late", "early", sources=str(closed / "sources"))
    one = Child(program, EchoReply, identity=Identity(NOBODY.pw_uid, NOBODY.pw_gid))
    assert (await one.request({})).text == "alone late"
    await one.close()


SERVICE = """
import asyncio, sys
import uvloop
from tests.child_processes.echo import Greeting
from tests.child_processes.test_child import child
from turnout.child_processes.bootstrap import Identity

async def main():
    who = Identity(65534, 65534) if sys.argv[1] == "other" else None
    one = child(Greeting(stubborn=True), identity=who)
    print((await one.request({})).pid, flush=True)
    await asyncio.sleep(600)

uvloop.run(main())
"""


@pytest.mark.parametrize("who", ["same", pytest.param("other", marks=AS_ROOT)])
@pytest.mark.parametrize("state", ["running", "stopped"])
def test_no_child_outlives_a_killed_service(who: str, state: str):
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{python_path()}"}
    command = [sys.executable, "-c", SERVICE, who]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as service:
        assert service.stdout
        pid = int(service.stdout.readline())
        watch = psutil.Process(pid)
        if state == "stopped":
            os.kill(pid, signal.SIGSTOP)
        service.kill()
    # init reaps it, which may take a while.
    with contextlib.suppress(psutil.NoSuchProcess):
        end = time.monotonic() + 30
        while watch.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < end, "it lives on"
            time.sleep(0.01)


def test_a_reply_needs_no_more_than_an_id():
    assert msgspec.json.decode(b'{"id": 3, "more": 1}', type=Reply).last
