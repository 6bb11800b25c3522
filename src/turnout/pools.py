"""Threads for work that would block the event loop: a bounded pool for each thing that such work waits for.

Projects take turns in a pool, and none gets all of its threads. Submit work of more than a few milliseconds in pieces:
others run in between, and the rest is dropped if the caller has gone.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

from turnout.errors import TimedOut

P = ParamSpec("P")
T = TypeVar("T")

OWN = ""
"""Used in place of a project for the service's own work."""

_LEAVE_SECONDS = 5.0

_log = logging.getLogger(__name__)


class ThreadPool:
    """Can be used from any event loop. Its threads never keep the process from ending, also if one is stuck."""

    def __init__(self, name: str, threads: int, per_project: int) -> None:
        """`per_project`: the most threads that one project may use at once."""
        self._name = name
        self._most = threads
        self._per_project = per_project
        self._changed = threading.Condition()
        self._waiting: dict[str, deque[_Task]] = {}
        """By project. The project whose turn is next comes first."""
        self._busy: Counter[str] = Counter()
        self._threads = self._idle = 0

    async def run(self, project: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Returns or raises what `work` does. If the caller is cancelled, work that has not begun is dropped."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        task = _Task(partial(work, *args, **kwargs), answer)
        self._put(project, task)
        try:
            return await answer
        except asyncio.CancelledError:
            task.wanted = False
            raise

    async def run_within(
        self, seconds: float, project: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """As `run`, but raises TimedOut after that time. The thread is not free before the work has ended."""
        try:
            async with asyncio.timeout(seconds):
                return await self.run(project, work, *args, **kwargs)
        except TimeoutError:
            raise TimedOut(f"there was no answer within {seconds:g} seconds") from None

    def post(self, project: str, work: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Runs it without a result. An error is logged."""
        self._put(project, _Task(partial(work, *args, **kwargs)))

    def drain(self, deadline: float) -> None:
        """Waits until no work is running, at most until `deadline` (time.monotonic)."""
        with self._changed:
            self._waiting.clear()
            while self._busy.total() and (rest := deadline - time.monotonic()) > 0:
                self._changed.wait(rest)

    def _put(self, project: str, task: "_Task") -> None:
        with self._changed:
            self._waiting.setdefault(project, deque()).append(task)
            if self._idle:
                self._changed.notify()
            elif self._threads < self._most:
                self._threads += 1
                name = f"{self._name}-{self._threads}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _serve(self) -> None:
        while True:
            with self._changed:
                while (found := self._next()) is None:
                    self._idle += 1
                    self._changed.wait()
                    self._idle -= 1
            project, task = found
            task.do()
            # The task may be large: free it before the thread waits for the next one.
            del task, found
            with self._changed:
                self._busy[project] -= 1
                if not self._busy[project]:
                    del self._busy[project]
                if not self._busy:
                    self._changed.notify_all()

    def _next(self) -> "tuple[str, _Task] | None":
        for project in list(self._waiting):
            if self._busy[project] >= self._per_project:
                continue
            tasks = self._waiting.pop(project)
            while tasks and not tasks[0].wanted:
                tasks.popleft()
            if not tasks:
                continue
            task = tasks.popleft()
            if tasks:
                self._waiting[project] = tasks  # behind all others
            self._busy[project] += 1
            return project, task
        return None


class _Task:
    """One piece of work, and the future of its caller, if it has one."""

    __slots__ = ("_answer", "_work", "wanted")

    def __init__(self, work: Callable[[], object], answer: "asyncio.Future[Any] | None" = None) -> None:
        self._work = work
        self._answer = answer
        self.wanted = True

    def do(self) -> None:
        try:
            result = self._work()
        except BaseException as error:  # noqa: BLE001 (the caller gets any error)
            self._resolve(error, None)
        else:
            self._resolve(None, result)

    def _resolve(self, error: BaseException | None, result: object) -> None:
        answer = self._answer
        if answer is None:
            if error is not None:
                _log.error("background work failed", exc_info=error)
            return

        def settle() -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)

        # A closed loop has no callers.
        with contextlib.suppress(RuntimeError):
            answer.get_loop().call_soon_threadsafe(settle)


logs = ThreadPool("logs", 2, 1)
"""Reading and searching logs: mostly Python code, of which only one thread can run at a time."""
disk = ThreadPool("disk", 16, 8)
"""Short calls on the data directory: objects, uploads, small files."""
copies = ThreadPool("copies", 4, 2)
"""Copying and removing whole trees in the data directory, which may take minutes."""
network = ThreadPool("network", 4, 2)
"""Connections to other machines and to programs of jobs."""
stores = ThreadPool("stores", 32, 8)
"""Objects in remote stores, for the clients of the gateways. A call has its time limit in the store's own client."""
mounts = ThreadPool("mounts", 16, 4)
"""File systems that may never answer: those of other machines, and the paths in [storage] host_paths."""
service = ThreadPool("service", 4, 4)
"""The service's own work, mostly when it starts."""


async def close() -> None:
    """Waits until running work has ended, a few seconds at most."""
    deadline = time.monotonic() + _LEAVE_SECONDS
    await ThreadPool("closing", 1, 1).run(OWN, _drain, deadline)


def _drain(deadline: float) -> None:
    for pool in (logs, disk, copies, network, stores, mounts, service):
        pool.drain(deadline)
