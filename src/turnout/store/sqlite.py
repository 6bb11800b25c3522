"""SQLite: WAL, synchronous=FULL, one connection that writes.

What is quick runs at once on the caller's thread, what may take long on another. The reason is the interpreter's lock:
sqlite3 lets go of it and takes it back for every row, and a thread that wants it back from a busy event loop can wait
for seconds (the loop lets go often and briefly, which starts the 5 ms after which it would have to anew). Measured for
a batch of 32 jobs beside a busy loop: 1.3 ms on the loop's own thread, median 4 ms and at worst 8 s on another.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from turnout.errors import Misconfigured
from turnout.store.driver import Connect, Crew, Step, StoreError, Unanswered
from turnout.store.rows import Row
from turnout.store.statements import SQLITE

BUSY_SECONDS = 10
READERS = 2
NEAR_KEYS = 100
NEAR_WRITES = 500
"""More rows than this at once would hold up the loop."""

SLOW_SECONDS = 0.005
SLOW_COMMITS = 20
"""After a commit that took longer, so many wait for the disk on the writer thread before the loop tries again."""

CHECKPOINT_PAGES = 1_000
LARGEST_LOG_PAGES = 8_000
_PAGE = 4096


class SqliteDriver:
    """One transaction at a time, begun and ended by `write`.

    The log is carried over into the database by a thread of its own, beside the commits and never within one. Only a
    log that grew beyond LARGEST_LOG_PAGES because commits never paused makes the next commit wait for that.
    """

    flavour = SQLITE

    def __init__(self, database: Path) -> None:
        self._path = database
        self._near = self._for_reading()
        self._writing = self._for_writing()
        self._writer = Crew("store-writer", lambda: self._writing)
        self._readers = Crew("store-reader", self._for_reading, threads=READERS)
        self._checkpointer = Crew("store-checkpoint", self._for_writing)
        self._working: asyncio.Future[None] | None = None
        self._slow = 0
        self._pages = 0
        self._checkpointing = False
        self._overfull = False

    async def write(self, steps: list[Step]) -> None:
        if self._working and not self._working.done():
            await asyncio.wait([self._working])  # its caller gave up waiting
        self._roll_back()
        if self._overfull:
            await self._checkpointer.run(self._checkpoint)
        size = sum(len(step.rows) for step in steps)
        pages = size + 2 * len(steps)
        await self._begin()
        if size <= NEAR_WRITES:
            self._change(steps)
            steps = []
        await self._commit(steps)
        self._written(pages)

    async def each(self, sql: str, keys: Sequence[Row]) -> list[list[Row]]:
        if len(keys) <= NEAR_KEYS:
            return _each(self._near, sql, keys)
        return await self._readers.run(lambda connect: _each(connect(), sql, keys))

    async def read(self, sql: str, parameters: Row = (), *, near: bool = False) -> list[Row]:
        if near:
            return _each(self._near, sql, (parameters,))[0]
        return await self._readers.run(lambda connect: _each(connect(), sql, (parameters,))[0])

    async def close(self) -> None:
        self._near.close()
        for crew in (self._readers, self._checkpointer, self._writer):
            await crew.close()
        self._writing.close()

    def _for_reading(self) -> sqlite3.Connection:
        connection = connect(self._path)
        connection.execute("PRAGMA query_only = ON")
        return connection

    def _for_writing(self) -> sqlite3.Connection:
        connection = connect(self._path)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(f"PRAGMA journal_size_limit = {LARGEST_LOG_PAGES * _PAGE}")
        connection.execute("PRAGMA busy_timeout = 0")
        return connection

    async def _begin(self) -> None:
        """A program that is not ours may hold the database; waiting for it is not for the loop."""
        try:
            self._writing.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not _busy(error):
                raise _explained(error) from error
            await self._on_thread(lambda: _begin_patiently(self._writing))

    def _change(self, steps: list[Step]) -> None:
        try:
            for step in steps:
                done = self._writing.executemany(step.sql, step.rows)
                if step.changes and done.rowcount != len(step.rows):
                    raise StoreError(f"only {done.rowcount} of {len(step.rows)} rows are there: {step.sql}")
        except BaseException as error:
            self._roll_back()
            if isinstance(error, sqlite3.Error):
                raise _explained(error) from error
            if isinstance(error, UnicodeError | OverflowError):
                raise StoreError(f"no database holds that: {error}") from error
            raise

    async def _commit(self, steps: list[Step]) -> None:
        """Of what was changed already, and of these steps."""
        if steps or self._slow:
            self._slow = max(0, self._slow - 1)
            await self._on_thread(lambda: self._finish(steps))
            return
        began = time.perf_counter()
        self._finish([])
        if time.perf_counter() - began > SLOW_SECONDS:
            self._slow = SLOW_COMMITS

    async def _on_thread(self, work: Callable[[], None]) -> None:
        """It goes on if the caller gives up: see `write`."""
        self._working = self._writer.submit(lambda _: work())
        await asyncio.wait([self._working])
        self._working.result()

    def _finish(self, steps: list[Step]) -> None:
        self._change(steps)
        try:
            self._writing.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise _explained(error) from error

    def _roll_back(self) -> None:
        # SQLite has done so already after the worst errors.
        if self._writing.in_transaction:
            self._writing.execute("ROLLBACK")

    def _written(self, pages: int) -> None:
        self._pages += pages
        if self._pages >= CHECKPOINT_PAGES and not self._checkpointing:
            self._pages, self._checkpointing = 0, True
            self._checkpointer.post(self._checkpoint_beside)

    def _checkpoint_beside(self, connect: Connect[sqlite3.Connection]) -> None:
        # The next commit begins the log anew if all of it was carried over when it starts.
        self._overfull = self._checkpoint(connect) > LARGEST_LOG_PAGES
        self._checkpointing = False

    def _checkpoint(self, connect: Connect[sqlite3.Connection]) -> int:
        """How many pages the log has."""
        self._overfull = False
        try:
            return connect().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]
        except sqlite3.Error:
            # The log keeps what was not carried over; a disk in trouble shows in the next commit.
            return 0


def prepare(database: Path) -> sqlite3.Connection:
    """A connection for making or changing the schema; the file is made if need be, for its owner only."""
    try:
        os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        os.chmod(database, 0o600)
        connection = connect(database)
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    except OSError as error:
        raise Misconfigured(f"the database {database} cannot be opened: {error.strerror}") from None
    except sqlite3.Error as error:
        raise Misconfigured(f"the database {database} cannot be used: {error}") from None
    if mode != "wal":
        raise Misconfigured(f"the database {database} is on a network file system: keep it on a local disk")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def _begin_patiently(connection: sqlite3.Connection) -> None:
    try:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.Error as error:
        raise _explained(error) from error
    finally:
        connection.execute("PRAGMA busy_timeout = 0")


def _each(connection: sqlite3.Connection, sql: str, keys: Sequence[Row]) -> list[list[Row]]:
    try:
        return [connection.execute(sql, key).fetchall() for key in keys]
    except sqlite3.Error as error:
        raise _explained(error) from error


def _busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY")


def _explained(error: sqlite3.Error) -> StoreError:
    if _busy(error):
        return Unanswered(f"another program has held the database for {BUSY_SECONDS} s")
    return StoreError(f"the database answers: {error}")
