"""The time limit of commands: one timer for all of them."""

import asyncio

import pytest

from turnout.control import answers
from turnout.control.answers import Answers
from turnout.errors import TimedOut
from turnout.job import Job

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(answers, "ANSWER_SECONDS", 0.2)


async def test_a_command_without_an_answer_fails_and_the_others_do_not():
    pending = Answers()
    first, late = pending.new(), pending.new()
    await asyncio.sleep(0.1)
    last = pending.new()
    first.cancel()
    with pytest.raises(TimedOut, match="the change may still happen"):
        await late
    assert not last.done()
    with pytest.raises(TimedOut):
        await last


async def test_answered_commands_are_forgotten():
    pending = Answers()
    for _ in range(100):
        pending.new().cancel()
    assert len(pending._pending) == 1
    await asyncio.sleep(0.4)
    assert not pending._pending
    assert pending._timer is None


async def test_a_later_command_has_its_whole_time():
    pending = Answers()
    pending.new().cancel()
    await asyncio.sleep(0.15)
    future: asyncio.Future[Job] = pending.new()
    await asyncio.sleep(0.1)
    assert not future.done()
    with pytest.raises(TimedOut):
        await future
