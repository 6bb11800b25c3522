"""SQLite: WAL, synchronous=FULL, one connection that writes.

Quick work runs on the caller's thread, work that may take long on another. The reason is the interpreter's lock (GIL):
sqlite3 releases it and takes it back for every row, and a thread that waits for it beside a busy event loop can wait
for seconds (the loop often releases it briefly, which restarts the 5 ms after which it must yield). Measured for
a batch of 32 jobs beside a busy loop: 1.3 ms on the loop's own thread, median 4 ms and at worst 8 s on another.
"""

import asyncio
import logging
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from turnout.errors import Misconfigured
from turnout.store.driver import Connect, ConnectionThreads, Step, StoreError, Unanswered
from turnout.store.rows import Row
from turnout.store.statements import SQLITE

BUSY_SECONDS = 10
READERS = 2
INLINE_KEYS = 100
INLINE_WRITES = 500
"""Writing more rows than this on the loop's thread would delay the loop."""

SLOW_SECONDS = 0.005
SLOW_COMMITS = 20
"""After two slower commits in a row, this many run on the writer thread before the loop tries again. A single one says
little about the disk: other programs may have had the cores.
"""

CHECKPOINT_PAGES = 4_000
"""The log gets about a quarter of these: they are estimated from the number of rows."""
BULK_PAGES = 200
"""The pages that a statement which changes many rows is assumed to write."""

SHRINK_SECONDS = 0.005
SHRINK_PAGES = (16, 1024)
"""The bounds for the number of pages of a step, which is adapted to that time."""
SPARE_PAGES = 256
"""Free pages that are kept for new rows."""

LARGEST_LOG_PAGES = 8_000
_PAGE = 4096
_INCREMENTAL = 2

_DECODE_ERROR = "Could not decode to UTF-8"

_log = logging.getLogger(__name__)


class SqliteDriver:
    """Runs one transaction at a time, in `write`.

    A separate thread checkpoints the write-ahead log, beside the commits and never within one. Only a
    log that grew beyond LARGEST_LOG_PAGES, because commits never paused, makes the next commit wait for a checkpoint.
    """

    flavour = SQLITE

    def __init__(self, database: Path) -> None:
        self._path = database
        self._inline = self._for_reading()
        self._writing = self._for_writing()
        self._writer = ConnectionThreads("store-writer", lambda: self._writing)
        # All are opened now: if the file is removed later, a new connection would make an empty one.
        readers = [self._for_reading() for _ in range(READERS)]
        self._readers = ConnectionThreads("store-reader", self._for_reading, threads=READERS, opened=readers)
        self._checkpointer = ConnectionThreads(
            "store-checkpoint", self._for_writing, opened=[self._for_writing()]
        )
        self._working: asyncio.Future[None] | None = None
        self._slow = 0
        """Commits that still run on the writer thread."""
        self._slow_in_a_row = 0
        self._pages = 0
        self._checkpointing = False
        self._overfull = False
        self._shrink_pages = SHRINK_PAGES[0]

    async def write(self, steps: list[Step]) -> None:
        await self._make_ready()
        size = sum(len(step.rows) for step in steps)
        bulk = sum(step.bulk for step in steps)
        pages = size + 2 * len(steps) + bulk * BULK_PAGES
        await self._begin()
        if size <= INLINE_WRITES and not bulk:
            self._change(steps)
            steps = []
        await self._commit(steps)
        self._written(pages)

    async def shrink(self) -> int:
        """The file gets shorter with the next checkpoint, which the last call makes: perhaps nobody writes for long."""
        await self._make_ready()
        pages, seconds = 0, 0.0

        def work() -> None:
            nonlocal pages, seconds
            pages, seconds = _free_pages(self._writing, self._shrink_pages)

        await self._on_thread(work)
        self._written(2 * pages)
        if pages:
            fitting = int(pages * SHRINK_SECONDS / max(seconds, 1e-6))
            self._shrink_pages = min(max(fitting, self._shrink_pages // 2, SHRINK_PAGES[0]), SHRINK_PAGES[1])
        elif self._pages and not self._checkpointing:
            self._pages = 0
            await self._checkpointer.run(self._checkpoint)
        return pages * _PAGE

    async def read_each(self, sql: str, keys: Sequence[Row]) -> list[list[Row]]:
        if len(keys) <= INLINE_KEYS:
            return _each(self._inline, sql, keys)
        return await self._readers.run(lambda connect: _each(connect(), sql, keys))

    async def read(self, sql: str, parameters: Row = (), *, inline: bool = False) -> list[Row]:
        if inline:
            return _each(self._inline, sql, (parameters,))[0]
        return await self._readers.run(lambda connect: _each(connect(), sql, (parameters,))[0])

    async def size(self) -> int:
        """With its log."""
        files = (self._path, self._path.with_name(self._path.name + "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    async def close(self) -> None:
        self._inline.close()
        for threads in (self._readers, self._checkpointer, self._writer):
            await threads.close()
        self._writing.close()

    def _for_reading(self) -> sqlite3.Connection:
        connection = connect(self._path)
        connection.execute("PRAGMA query_only = ON")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # opens the write-ahead log too
        return connection

    def _for_writing(self) -> sqlite3.Connection:
        connection = connect(self._path)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(f"PRAGMA journal_size_limit = {LARGEST_LOG_PAGES * _PAGE}")
        connection.execute("PRAGMA busy_timeout = 0")
        return connection

    async def _make_ready(self) -> None:
        if self._working and not self._working.done():
            await asyncio.wait([self._working])  # its caller gave up waiting
        self._roll_back()
        if self._overfull:
            await self._checkpointer.run(self._checkpoint)

    async def _begin(self) -> None:
        """Another program may have locked the database; the wait for it must not block the loop."""
        try:
            self._writing.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not _busy(error):
                raise _explained(error) from error
            await self._on_thread(lambda: _begin_and_wait(self._writing))

    def _change(self, steps: list[Step]) -> None:
        try:
            for step in steps:
                done = self._writing.executemany(step.sql, step.rows)
                if step.changes and done.rowcount != len(step.rows):
                    raise StoreError(f"only {done.rowcount} of {len(step.rows)} rows exist: {step.sql}")
        except BaseException as error:
            self._roll_back()
            if isinstance(error, sqlite3.Error):
                raise _explained(error) from error
            if isinstance(error, UnicodeError | OverflowError):
                raise StoreError(f"a value cannot be stored: {error}") from error
            raise

    async def _commit(self, steps: list[Step]) -> None:
        """Commits the changes so far and these steps."""
        if steps or self._slow:
            self._slow = max(0, self._slow - 1)
            await self._on_thread(lambda: self._finish(steps))
            return
        began = time.perf_counter()
        self._finish([])
        self._slow_in_a_row = self._slow_in_a_row + 1 if time.perf_counter() - began > SLOW_SECONDS else 0
        if self._slow_in_a_row > 1:
            self._slow = SLOW_COMMITS

    async def _on_thread(self, work: Callable[[], None]) -> None:
        """Continues if the caller is cancelled: see `write`."""
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
        # After severe errors SQLite has already rolled back.
        if self._writing.in_transaction:
            self._writing.execute("ROLLBACK")

    def _written(self, pages: int) -> None:
        self._pages += pages
        if self._pages >= CHECKPOINT_PAGES and not self._checkpointing:
            self._pages, self._checkpointing = 0, True
            self._checkpointer.post(self._checkpoint_in_background)

    def _checkpoint_in_background(self, connect: Connect[sqlite3.Connection]) -> None:
        # The next commit restarts the log if a checkpoint has copied all of it by then.
        self._overfull = self._checkpoint(connect) > LARGEST_LOG_PAGES
        self._checkpointing = False

    def _checkpoint(self, connect: Connect[sqlite3.Connection]) -> int:
        """Returns the number of pages in the log."""
        self._overfull = False
        try:
            return connect().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]
        except sqlite3.Error:
            # The log keeps what was not copied. The next commit reports a failing disk.
            return 0


def prepare(database: Path) -> sqlite3.Connection:
    """A connection to create or change the schema. Creates a missing file, readable by its owner only."""
    try:
        os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        os.chmod(database, 0o600)
        connection = connect(database)
        # This takes effect at once only in an empty database: see make_shrinkable.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    except OSError as error:
        raise Misconfigured(f"the database {database} cannot be opened: {error.strerror}") from None
    except sqlite3.Error as error:
        raise Misconfigured(f"the database {database} cannot be used: {error}") from None
    if mode != "wal":
        raise Misconfigured(f"the database {database} is on a network file system: keep it on a local disk")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def make_shrinkable(connection: sqlite3.Connection, database: Path) -> None:
    """Rebuilds a database of an earlier Turnout once, because deleted rows would not make its file smaller."""
    if connection.execute("PRAGMA auto_vacuum").fetchone()[0] == _INCREMENTAL:
        return
    size = database.stat().st_size
    try:
        free = shutil.disk_usage(database.parent).free
        if free < 3 * size:
            raise OSError(f"that needs {3 * size >> 20} MB of free disk space, and {free >> 20} MB are free")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("VACUUM")
    except (sqlite3.Error, OSError) as error:
        _log.warning("%s was not rebuilt, so deleted jobs do not make it smaller: %s", database, error)


def connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def _free_pages(connection: sqlite3.Connection, most: int) -> tuple[int, float]:
    """Returns the number of freed pages, and the seconds that it took."""
    began = time.perf_counter()
    try:
        free = connection.execute("PRAGMA freelist_count").fetchone()[0]
        pages = min(most, free - SPARE_PAGES)
        if pages <= 0:
            return 0, 0.0
        connection.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()
        remaining = connection.execute("PRAGMA freelist_count").fetchone()[0]
    except sqlite3.Error as error:
        if _busy(error):
            return 0, 0.0  # another program writes: try again later
        raise _explained(error) from error
    return max(0, free - remaining), time.perf_counter() - began


def _begin_and_wait(connection: sqlite3.Connection) -> None:
    try:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.Error as error:
        raise _explained(error) from error
    finally:
        connection.execute("PRAGMA busy_timeout = 0")


def _each(connection: sqlite3.Connection, sql: str, keys: Sequence[Row]) -> list[list[Row]]:
    try:
        if len(keys) < 2:
            return [connection.execute(sql, key).fetchall() for key in keys]
        # In one transaction: otherwise each statement locks the database anew, which costs as much as its search.
        connection.execute("BEGIN")
        try:
            return [connection.execute(sql, key).fetchall() for key in keys]
        finally:
            connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if _DECODE_ERROR not in str(error):
            raise _explained(error) from error
    except sqlite3.Error as error:
        raise _explained(error) from error
    # One of the texts is damaged: read it with replacement characters.
    connection.text_factory = lambda data: data.decode(errors="replace")
    try:
        return [connection.execute(sql, key).fetchall() for key in keys]
    except sqlite3.Error as error:
        raise _explained(error) from error
    finally:
        connection.text_factory = str


def _busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY")


def _explained(error: sqlite3.Error) -> StoreError:
    if _busy(error):
        return Unanswered(f"another program has held the database for {BUSY_SECONDS} s")
    return StoreError(f"the database answers: {error}")
