"""Runs several tasks at a time. The first error stops the rest and is raised."""

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from types import TracebackType

AT_A_TIME = 8


class TaskPool:
    """A context manager. Leaving it waits for all tasks; after an error, it cancels those that are not done."""

    def __init__(self, cancelled: threading.Event) -> None:
        """`cancelled` is set when the remaining tasks should end."""
        self._cancelled = cancelled
        self._pool = ThreadPoolExecutor(AT_A_TIME)
        self._pending: set[Future[None]] = set()

    def __enter__(self) -> "TaskPool":
        return self

    def submit(self, task: Callable[[], None]) -> None:
        """Waits while enough tasks are queued, so that a million do not fill the memory. Raises the first error."""
        if len(self._pending) >= 4 * AT_A_TIME:
            done, self._pending = wait(self._pending, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()
        self._pending.add(self._pool.submit(task))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            while kind is None and self._pending:
                done, self._pending = wait(self._pending, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
        finally:
            self._cancelled.set()
            self._pool.shutdown(cancel_futures=True)
