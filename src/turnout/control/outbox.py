"""The instructions for one engine, sent in order by a task of their own, so that a slow engine delays no other.

An instruction enters the outbox after its cause is committed. If the service or the connection dies, the lost
instructions are derived again from what the engine reports that it holds.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable

from turnout.chaos import point
from turnout.control.turn import Forget, Instruction, Remove, RestartReplica, Save, StartGang, StopGang
from turnout.engines import Engine, Refused, Unreachable
from turnout.job import Attempt

log = logging.getLogger(__name__)

_SLOW_SECONDS = 30
_CLOSE_SECONDS = 2
_FIRST_RETRY = 0.1
_LONGEST_RETRY = 5.0
_TRIES = 3


class Outbox:
    def __init__(self, name: str, engine: Engine, refused: Callable[[Instruction, str], None]) -> None:
        """`refused` is called with each instruction that will never be carried out, and why."""
        self._name = name
        self._engine = engine
        self._refused = refused
        self._waiting: deque[Instruction] = deque()
        self._wake = asyncio.Event()
        self._synced = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._done = 0
        self._progress_check: asyncio.TimerHandle | None = None
        self.unreachable = ""
        """Why the engine cannot be reached at the moment."""
        self._failed: dict[int, int] = {}
        """The number of failures of each waiting instruction, by its `id()`."""

    def put(self, instruction: Instruction) -> None:
        self._waiting.append(instruction)
        self._idle.clear()
        self._wake.set()

    def drop_outdated(self) -> None:
        """Call it when the engine has reported what it holds: needed instructions are then derived again.

        Attempts that are over are still stopped and forgotten: the engine may not have held them yet when it reported.
        """
        over = {instruction.attempt for instruction in self._waiting if isinstance(instruction, Forget)}
        kept = [instruction for instruction in self._waiting if _outlives_sync(instruction, over)]
        self._waiting.clear()
        self._failed.clear()
        self._waiting.extend(dict.fromkeys(kept))
        self._synced.set()

    async def run(self) -> None:
        """Runs forever. A failing instruction affects its own job only; an unreachable engine is retried.

        If it raises, call it again: it continues with the waiting instructions.
        """
        pause = _FIRST_RETRY
        while True:
            await self._wake.wait()
            self._synced.clear()
            self._idle.clear()
            try:
                await self._carry_out_all()
            except Unreachable as error:
                self.unreachable = error.message
                if pause == _FIRST_RETRY:
                    log.warning("engine %s: %s", self._name, error.message)
                self._idle.set()
                # Not `wait_for`: in Python 3.11 it ignores a cancellation that comes together with the event.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._synced.wait()
                pause = min(2 * pause, _LONGEST_RETRY)
            else:
                pause, self.unreachable = _FIRST_RETRY, ""
                self._wake.clear()
                self._idle.set()

    async def drained(self) -> None:
        """Waits a moment until the outbox is empty or the engine is unreachable. The next service does the rest."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), _CLOSE_SECONDS)

    async def _carry_out_all(self) -> None:
        self._check_later()
        try:
            while self._waiting:
                instruction = self._waiting.popleft()
                try:
                    await self._carry_out(instruction)
                except Unreachable:
                    self._waiting.appendleft(instruction)
                    raise
                except Exception:
                    self._try_later(instruction)
                    raise
                self._failed.pop(id(instruction), None)
                self._done += 1
        finally:
            if self._progress_check:
                self._progress_check.cancel()

    async def _carry_out(self, instruction: Instruction) -> None:
        try:
            await _send(self._engine, instruction)
            point("control.acted")
        except Unreachable:
            raise
        except Refused as error:
            self._refused(instruction, error.message)
        except Exception as error:  # a failing instruction affects its own job only
            log.exception("engine %s could not carry out %r", self._name, instruction)
            self._refused(instruction, f"the engine failed: {error}")

    def _try_later(self, instruction: Instruction) -> None:
        """Puts the instruction behind the waiting ones, a few times at most: such a failure is a bug of ours."""
        tries = self._failed.pop(id(instruction), 0) + 1
        if tries < _TRIES:
            self._failed[id(instruction)] = tries
            self._waiting.append(instruction)
        else:
            log.error("engine %s: %r failed %d times and is dropped", self._name, instruction, tries)

    def _check_later(self) -> None:
        self._progress_check = asyncio.get_running_loop().call_later(
            _SLOW_SECONDS, self._check_progress, self._done
        )

    def _check_progress(self, done: int) -> None:
        """Logs an error if no instruction was carried out since the last check."""
        if self._done == done:
            message = "engine %s has not answered for %d s; %d instructions wait"
            log.error(message, self._name, _SLOW_SECONDS, len(self._waiting))
        self._check_later()


def _outlives_sync(instruction: Instruction, over: set[Attempt]) -> bool:
    match instruction:
        case Forget() | Remove():
            return True
        case StopGang(_, attempt):
            return attempt in over
        case _:
            return False


async def _send(engine: Engine, instruction: Instruction) -> None:
    match instruction:
        case StartGang(_, launch):
            await engine.start(launch)
        case RestartReplica(_, launch, replica, restarts):
            await engine.restart(launch, replica, restarts)
        case StopGang(_, attempt, grace, replicas):
            await engine.stop(attempt, grace, replicas)
        case Save(_, attempt):
            await engine.save(attempt)
        case Forget(_, attempt, keep_workspace):
            await engine.forget(attempt, keep_workspace)
        case Remove(_, attempts):
            await engine.remove(list(attempts))
