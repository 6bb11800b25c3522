"""Many calls at a time, in threads."""

from __future__ import annotations

import queue
import threading
from types import TracebackType
from typing import Any, Callable, List, Optional, Tuple, Type

_Call = Tuple[Callable[..., object], Tuple[Any, ...]]


class Parallel:
    """`with Parallel(16) as parallel: parallel.start(function, …)` waits for all calls, and raises the first error.

    After an error no further call starts.
    """

    def __init__(self, threads: int) -> None:
        self._most = max(1, threads)
        self._calls: "queue.Queue[Optional[_Call]]" = queue.Queue(maxsize=4 * self._most)
        self._threads: List[threading.Thread] = []
        self._error: Optional[BaseException] = None
        self.started = 0

    def start(self, function: Callable[..., object], *arguments: Any) -> None:
        """Not for the functions that are called: it waits while there is enough to do."""
        if self._error:
            raise self._error
        if len(self._threads) < self._most:
            self._add_thread()
        self.started += 1
        if self._threads:
            self._calls.put((function, arguments))
        else:
            function(*arguments)

    def _add_thread(self) -> None:
        thread = threading.Thread(target=self._work, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # there are no more threads, or the interpreter is about to end
            return
        self._threads.append(thread)

    def __enter__(self) -> Parallel:
        return self

    def __exit__(
        self,
        _kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        _trace: Optional[TracebackType],
    ) -> None:
        if error and not self._error:
            self._error = error
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            thread.join()
        if self._error and not error:
            raise self._error

    def _work(self) -> None:
        while True:
            given = self._calls.get()
            if given is None:
                return
            function, arguments = given
            try:
                if not self._error:
                    function(*arguments)
            except BaseException as error:  # noqa: BLE001 (the caller's thread raises it)
                self._error = self._error or error
