"""What the store needs of a database, and the threads that it is used in."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from turnout.errors import TimedOut, TurnoutError
from turnout.store.rows import Row
from turnout.store.statements import Flavour

Connection = TypeVar("Connection")
Result = TypeVar("Result")
Connect = Callable[[], Connection]
"""Gives a thread its connection, a new one if the last broke."""


class StoreError(TurnoutError):
    """The database did not do it: the disk is full, the connection broke. Nothing of the batch is visible then."""


class Unanswered(StoreError, TimedOut):
    """The database did not answer in time."""


class Step(NamedTuple):
    """One statement, run with each of the rows."""

    sql: str
    rows: list[Row]
    changes: bool = False
    """Every row must change exactly one of the table's."""


class Driver(Protocol):
    flavour: Flavour

    async def write(self, steps: list[Step]) -> None:
        """All or nothing, and on disk when it returns. One at a time: see `Writing`. Raises StoreError."""
        ...

    async def each(self, sql: str, keys: Sequence[Row]) -> list[list[Row]]:
        """The statement's answer for each key, in their order. For lookups by an index that find little."""
        ...

    async def read(self, sql: str, parameters: Row = (), *, near: bool = False) -> list[Row]:
        """`near`: it is known to be quick, so a thread is not worth its while."""
        ...

    async def close(self) -> None: ...


class Crew(Generic[Connection]):
    """Threads with a connection each that take work from one queue; answers go back to the caller's loop.

    `concurrent.futures` would do too, at twice the time for each hand-over.
    """

    def __init__(
        self,
        name: str,
        connect: Connect[Connection],
        usable: Callable[[Connection], bool] = lambda _: True,
        threads: int = 1,
    ) -> None:
        self._connect = connect
        self._usable = usable
        self._queue: SimpleQueue[Callable[[Connect[Connection]], None] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, name=f"{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[Connect[Connection]], Result]) -> Result:
        return await self.submit(work)

    def submit(self, work: Callable[[Connect[Connection]], Result]) -> asyncio.Future[Result]:
        """It is done even if nobody waits for the answer any more."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Result] = loop.create_future()

        def task(connect: Connect[Connection]) -> None:
            try:
                result = work(connect)
            except Exception as error:  # noqa: BLE001 - the caller gets it, whatever it is
                _tell(loop, answer, answer.set_exception, error)
            else:
                _tell(loop, answer, answer.set_result, result)

        self._queue.put(task)
        return answer

    def post(self, work: Callable[[Connect[Connection]], None]) -> None:
        """Without an answer; `work` deals with what goes wrong."""
        self._queue.put(work)

    async def close(self) -> None:
        """After what was handed in before."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _serve(self) -> None:
        connection: Connection | None = None

        def ready() -> Connection:
            nonlocal connection
            if connection is not None and not self._usable(connection):
                _close(connection)
                connection = None
            if connection is None:
                connection = self._connect()
            return connection

        while task := self._queue.get():
            task(ready)
        if connection is not None:
            _close(connection)


def _tell(
    loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Any], tell: Callable[[Any], None], what: object
) -> None:
    def settle() -> None:
        if not answer.cancelled():
            tell(what)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:  # the loop is closed: nobody waits any more
        return


def _close(connection: Any) -> None:
    connection.close()
