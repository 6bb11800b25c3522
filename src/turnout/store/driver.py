"""The protocol of a database driver, and threads that each have a connection."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from turnout import pools
from turnout.errors import NotStored, TimedOut, TurnoutError
from turnout.store.rows import Row
from turnout.store.statements import Flavour

Connection = TypeVar("Connection")
Result = TypeVar("Result")
Connect = Callable[[], Connection]
"""Returns the thread's connection; opens a new one if the last broke."""


class StoreError(TurnoutError):
    """The database failed: the disk is full, or the connection broke. Nothing of the batch is visible."""


class Removed(StoreError, NotStored):
    """The database file was removed, so everything that is written now is lost when the service ends."""


class Unanswered(StoreError, TimedOut):
    """The database did not answer in time."""


class Step(NamedTuple):
    """One statement, run with each of the rows."""

    sql: str
    rows: list[Row]
    changes: bool = False
    """Each row must change exactly one row of the table."""
    bulk: bool = False
    """One row changes many rows of the table. It may take a while, so it never runs in the event loop's thread."""


class Driver(Protocol):
    flavour: Flavour

    async def write(self, steps: list[Step]) -> None:
        """All or nothing, and on disk when it returns. One at a time: see `WriteQueue`. Raises StoreError."""
        ...

    async def read_each(self, sql: str, keys: Sequence[Row]) -> list[list[Row]]:
        """The rows for each key, in the order of the keys. For lookups by an index that find few rows."""
        ...

    async def read(self, sql: str, parameters: Row = (), *, inline: bool = False) -> list[Row]:
        """`inline`: run it in the calling thread if that is possible, because it is quick."""
        ...

    async def shrink(self) -> int:
        """Returns some free space of the database to the disk. The result is about how many bytes.

        0: there is none left, or the database does this by itself. One at a time, like `write`.
        """
        ...

    async def size(self) -> int:
        """Bytes of the database on disk."""
        ...

    async def close(self) -> None: ...


class ConnectionThreads(Generic[Connection]):
    """Threads with a connection each that take work from one queue; answers go back to the caller's loop.

    `concurrent.futures` would take twice as long to pass on each task.
    """

    def __init__(
        self,
        name: str,
        connect: Connect[Connection],
        usable: Callable[[Connection], bool] = lambda _: True,
        threads: int = 1,
        opened: Sequence[Connection] = (),
    ) -> None:
        """`opened`: the first connections of the threads, if they have to be open already."""
        self._connect = connect
        self._usable = usable
        self._queue: SimpleQueue[Callable[[Connect[Connection]], None] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, args=(first,), name=f"{name}-{number}", daemon=True)
            for number, first in enumerate([*opened, *[None] * (threads - len(opened))])
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[Connect[Connection]], Result]) -> Result:
        return await self.submit(work)

    def submit(self, work: Callable[[Connect[Connection]], Result]) -> asyncio.Future[Result]:
        """The work completes even if the caller is cancelled."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Result] = loop.create_future()

        def task(connect: Connect[Connection]) -> None:
            try:
                result = work(connect)
            except Exception as error:  # noqa: BLE001 - the caller gets any error
                _resolve(loop, answer, answer.set_exception, error)
            else:
                _resolve(loop, answer, answer.set_result, result)

        self._queue.put(task)
        return answer

    def post(self, work: Callable[[Connect[Connection]], None]) -> None:
        """Runs it without a result. `work` handles its own errors."""
        self._queue.put(work)

    async def close(self) -> None:
        """Ends the threads after all earlier work."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            await pools.service.run(pools.OWN, thread.join)

    def _serve(self, connection: Connection | None) -> None:
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


def _resolve(
    loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Any], settle: Callable[[Any], None], value: object
) -> None:
    def resolve() -> None:
        if not answer.cancelled():
            settle(value)

    try:
        loop.call_soon_threadsafe(resolve)
    except RuntimeError:  # the loop is closed
        return


def _close(connection: Any) -> None:
    connection.close()
