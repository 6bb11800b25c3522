"""The pool of search workers: a few processes, each of which answers one request at a time, of any search.

They run as an unprivileged user with a memory limit, and end when they are idle. Projects take turns.
"""

import contextlib
import itertools
import os
from asyncio import CancelledError, Future, get_running_loop, shield, timeout
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

from msgspec.structs import replace

from turnout.child_processes.bootstrap import Identity, Setup
from turnout.child_processes.child import Child, ChildProgram
from turnout.search.messages import Request, StudyReply

IDLE_SECONDS = 60.0
PROCESSES = 4
MEMORY = 1 << 30
PROGRAM = ChildProgram("search process", "turnout.search.worker", quiet=True, longest_line=1 << 26)

# A second thread gains nothing on matrices this small, and takes a core from the trials.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Worker:
    """One worker process; when it dies, the next request starts another."""

    def __init__(self, child: Child[StudyReply]) -> None:
        self._child = child
        self._sessions = itertools.count(1)

    @property
    def runs(self) -> bool:
        return self._child.pid is not None

    def new_session(self) -> int:
        """A number that is unique for this worker."""
        return next(self._sessions)

    async def request(self, request: Request, seconds: float) -> StudyReply:
        """Raises ChildDied, Closed and TimeoutError. Cancellation and a timeout kill the process."""
        try:
            async with timeout(seconds):
                return await self._child.request(request)
        except (CancelledError, TimeoutError):
            await shield(self._child.kill())
            raise

    async def end(self) -> None:
        """The next request starts another process."""
        await self._child.kill()

    async def close(self) -> None:
        await self._child.close()


class SearchWorkerPool:
    def __init__(
        self,
        processes: int = PROCESSES,
        memory: int = MEMORY,
        *,
        idle: float = IDLE_SECONDS,
        cache: Path | None = None,
        identity: Identity | None = None,
        program: ChildProgram = PROGRAM,
    ) -> None:
        """`cache`: a directory for matplotlib's cache. `identity`: the user that the processes run as."""
        self.memory = memory
        self._processes = processes
        self._idle = idle
        self._cache = cache
        self._identity = identity
        self._program = program
        self._free: list[Worker] = []
        self._all: list[Worker] = []
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[tuple[Future[Worker], Worker | None]]] = {}

    @contextlib.asynccontextmanager
    async def worker(self, project: str, preferred: Worker | None = None) -> AsyncGenerator[Worker]:
        """A worker for the caller's exclusive use: `preferred` if it is free, otherwise any.

        One project never gets all workers (if there are several), so it cannot block the searches of others.
        """
        self._open()
        worker = await self._take(project, preferred)
        try:
            yield worker
        finally:
            self._give_back(project, worker)

    async def close(self) -> None:
        for worker in self._all:
            await worker.close()

    def _open(self) -> None:
        if self._all:
            return
        environment = _ENVIRONMENT | self._prepare_cache()
        program = replace(self._program, environment=environment)
        setup = Setup(memory=self.memory)
        for _ in range(self._processes):
            child = Child(program, StudyReply, setup, identity=self._identity, idle=self._idle)
            self._all.append(Worker(child))
        self._free = list(self._all)

    def _prepare_cache(self) -> dict[str, str]:
        if self._cache is None:
            return {}
        with contextlib.suppress(OSError):  # without it only the first plot takes longer
            self._cache.mkdir(mode=0o700, exist_ok=True)
            if self._identity and self._cache.stat().st_uid != self._identity.uid:
                _hand_over(self._cache, self._identity)
        return {"MPLCONFIGDIR": str(self._cache)}

    async def _take(self, project: str, preferred: Worker | None) -> Worker:
        if self._free and self._may_take(project):
            return self._choose(project, preferred)
        assigned: Future[Worker] = get_running_loop().create_future()
        self._waiting.setdefault(project, deque()).append((assigned, preferred))
        try:
            return await assigned
        except CancelledError:
            if assigned.done() and not assigned.cancelled():
                self._give_back(project, assigned.result())
            raise

    def _may_take(self, project: str) -> bool:
        return self._held[project] < max(1, self._processes - 1)

    def _choose(self, project: str, preferred: Worker | None) -> Worker:
        """Prefers a running process to one that has to be started."""
        if preferred is None or preferred not in self._free:
            preferred = next((worker for worker in self._free if worker.runs), self._free[0])
        self._free.remove(preferred)
        self._held[project] += 1
        return preferred

    def _give_back(self, project: str, worker: Worker) -> None:
        self._held[project] -= 1
        if not self._held[project]:
            del self._held[project]
        self._free.append(worker)
        for next_project in self._turns():
            assigned, preferred = self._waiting[next_project].popleft()
            if not assigned.done():
                assigned.set_result(self._choose(next_project, preferred))

    def _turns(self) -> Iterator[str]:
        """The project to serve next, as long as a worker is free; each one then goes to the end of the line."""
        while self._free:
            project = next((name for name in self._waiting if self._may_take(name)), None)
            if project is None:
                return
            yield project
            queue = self._waiting.pop(project)
            if queue:
                self._waiting[project] = queue


def _hand_over(directory: Path, identity: Identity) -> None:
    """Change the owner of all files: an earlier service may have run its workers under its own user."""
    for _, _, files, descriptor in os.fwalk(directory, topdown=False):
        for name in files:
            os.chown(name, identity.uid, identity.gid, dir_fd=descriptor, follow_symlinks=False)
        os.fchown(descriptor, identity.uid, identity.gid)
