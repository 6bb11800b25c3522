"""The line to the process that moves data between this machine and real object stores (`turnout.runner.stage`).

It is started when there is something to move, serves all jobs, and goes after a while without work. If it is killed,
what was under way is asked for again: it finds out itself what is done already.
"""

import asyncio
import contextlib
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from turnout.engines.local.account import Account
from turnout.errors import TurnoutError

_log = logging.getLogger(__name__)

_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from turnout.runner.stage.__main__ import main; main()"
)
_SOURCES = Path(__file__).parents[3]
_IDLE_SECONDS = 30
_GOODBYE_SECONDS = 1
_TRIES = 5
_PAUSE = 0.5
_LONGEST_LINE = 1 << 20

Item = Mapping[str, Any]


class NotMoved(TurnoutError):
    """The message names what could not be moved, and why."""


class Moved(msgspec.Struct):
    files: int = 0
    bytes: int = 0
    waiting: int = 0
    """Files that were being written and are left for the next time."""
    warnings: list[str] = []


class _Answer(msgspec.Struct):
    id: int
    progress: Any = None
    done: Moved | None = None
    failed: str = ""
    cancelled: bool = False


class _Died(Exception):
    """The process is gone, and with it what was under way."""


class Mover:
    def __init__(self, account: Account) -> None:
        self._account = account
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()
        self._waiting: dict[int, asyncio.Future[Moved]] = {}
        self._count = 0
        self._reader: asyncio.Task[None] | None = None
        self._leaving: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def fetch(self, items: Sequence[Item]) -> Moved:
        """Raises NotMoved."""
        return await self._ask({"do": "in", "items": items})

    async def bring_back(self, items: Sequence[Item], *, final: bool) -> Moved:
        """What has changed. Not `final`: what is being written at the moment is left for the next time."""
        return await self._ask({"do": "out", "items": items, "final": final})

    async def close(self) -> None:
        """What is under way is given up; whoever asked for it asks again when there is a service again."""
        if self._leaving:
            self._leaving.cancel()
        if self._process is None or self._reader is None:
            return
        assert self._process.stdin
        self._process.stdin.close()
        try:
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await asyncio.shield(self._reader)
        except TimeoutError:
            self._process.kill()
            await self._reader

    async def _ask(self, request: dict[str, Any]) -> Moved:
        for _ in range(_TRIES):
            try:
                return await self._ask_once(request)
            except _Died:
                _log.warning("the mover was lost and is started again")
                await asyncio.sleep(_PAUSE)
        raise NotMoved(f"the process that moves data ended {_TRIES} times; the service's log may say why")

    async def _ask_once(self, request: dict[str, Any]) -> Moved:
        process = await self._running()
        assert process.stdin
        self._count += 1
        number = self._count
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            process.stdin.write(msgspec.json.encode({"id": number, **request}) + b"\n")
            return await answer
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):
                process.stdin.write(msgspec.json.encode({"id": number, "cancel": True}) + b"\n")
            raise
        finally:
            del self._waiting[number]
            self._leave_later()

    async def _running(self) -> asyncio.subprocess.Process:
        async with self._starting:
            if self._process is None:
                self._process = await self._start()
                self._reader = asyncio.create_task(self._listen(self._process), name="mover")
            return self._process

    async def _start(self) -> asyncio.subprocess.Process:
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-c", _START, str(_SOURCES),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_LONGEST_LINE,
                cwd="/",
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise NotMoved(f"the process that moves data cannot be started: {error.strerror}") from None
        assert process.stdin
        who = {"uid": self._account.uid, "gid": self._account.gid} if self._account.other else {}
        process.stdin.write(msgspec.json.encode(who) + b"\n")
        return process

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout
        try:
            while line := await process.stdout.readline():
                self._heard(msgspec.json.decode(line, type=_Answer))
        except (ValueError, msgspec.MsgspecError):
            _log.exception("the mover said what nobody understands")
            process.kill()
        self._process = None
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(_Died())
        await process.wait()

    def _heard(self, answer: _Answer) -> None:
        waiting = self._waiting.get(answer.id)
        if waiting is None or waiting.done():
            return
        if answer.done is not None:
            waiting.set_result(answer.done)
        elif answer.failed:
            waiting.set_exception(NotMoved(answer.failed))

    def _leave_later(self) -> None:
        if self._leaving:
            self._leaving.cancel()
        self._leaving = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._leave)

    def _leave(self) -> None:
        if self._process and self._process.stdin and not self._waiting:
            process, self._process = self._process, None
            assert process.stdin
            process.stdin.close()
