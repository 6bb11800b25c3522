"""A controller on a real store, with an engine and a store that do what the test says."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.control.stepping import MASTER, gang
from turnout.control import Controller
from turnout.engines import EngineRegistry, Traits
from turnout.job import (
    Attempt,
    Capacity,
    Cause,
    Ended,
    Job,
    Launch,
    NewJob,
    Node,
    ReplicaName,
    Report,
    Spec,
    Started,
    Synced,
)
from turnout.job.resources import GIB, millicores
from turnout.store import Batch, Store, StoreError


class ScriptedEngine:
    """Records the calls it gets, and reports what the test puts in."""

    traits = Traits("local")

    def __init__(self, cpu: int = 4) -> None:
        self.remembered: dict[Attempt, str] = {}
        self.said: asyncio.Queue[Report] = asyncio.Queue()
        self.asked: list[tuple[str, Attempt]] = []
        self.fails: list[Exception] = []
        self.hangs: dict[str, asyncio.Event] = {}
        self.called = asyncio.Event()
        self.said.put_nowait(Capacity((Node("this", millicores(cpu), 16 * GIB, 0),)))

    def remember(self, submitted: Mapping[Attempt, str]) -> None:
        self.remembered = dict(submitted)

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    def stopping(self) -> None: ...

    def refuses(self, launch: Launch) -> str:
        return ""

    def trouble(self) -> str:
        return ""

    async def reports(self) -> AsyncIterator[Report]:
        while True:
            yield await self.said.get()

    def runtime(self, name: str) -> str:
        return name

    async def start(self, launch: Launch) -> None:
        if launch.name in self.hangs:
            await self.hangs[launch.name].wait()
        self._ask("start", launch.attempt)

    async def restart(self, launch: Launch, replica: ReplicaName, restarts: int) -> None:
        self._ask(f"restart {restarts}", launch.attempt)

    async def stop(self, attempt: Attempt, grace: float, replicas: tuple[ReplicaName, ...] = ()) -> None:
        self._ask("stop", attempt)

    async def save(self, attempt: Attempt) -> None:
        self._ask("save", attempt)

    async def forget(self, attempt: Attempt, keep_workspace: bool = False) -> None:
        self._ask("forget", attempt)

    async def remove(self, attempts: list[Attempt]) -> None:
        self._ask("remove", attempts[0])

    def _ask(self, what: str, attempt: Attempt) -> None:
        self.asked.append((what, attempt))
        self.called.set()
        if self.fails:
            raise self.fails.pop()

    async def until_asked(self, *words: str) -> None:
        async with asyncio.timeout(20):
            while [what for what, _ in self.asked] != list(words):
                self.called.clear()
                await self.called.wait()

    def sync(self, *held: Attempt) -> None:
        self.said.put_nowait(Synced(frozenset(held)))

    def run(self, job: Job, code: int = 0) -> None:
        self.said.put_nowait(Started(job.current, MASTER, 1, 2, "127.0.0.9"))
        self.said.put_nowait(Ended(job.current, MASTER, 3, Cause.EXIT, code))


class ScriptedStore(Store):
    """The real store, which fails to write when the test says so."""

    broken = False
    silent = False
    """It writes, but the answer is lost."""

    async def commit(self, batch: Batch) -> None:
        if self.broken:
            raise StoreError("the disk is full")
        await super().commit(batch)
        if self.silent:
            self.silent = False
            raise StoreError("the connection broke")


@asynccontextmanager
async def opened(tmp_path: Path, engine: ScriptedEngine) -> AsyncIterator[tuple[Controller, ScriptedStore]]:
    opened = Store.open("", tmp_path / "turnout.db")
    store = ScriptedStore(opened._driver)
    control = Controller(store, EngineRegistry({"local": engine}, {"here": "local"}))  # type: ignore[dict-item]
    await control.start()
    try:
        yield control, store
    finally:
        await control.close()
        await store.close()


def new(name: str, spec: Spec | None = None) -> NewJob:
    return NewJob("p", "tia", "tia:here", name, name, "here", spec or gang(), b"{}")


async def ended(control: Controller, store: Store, job: Job) -> Job:
    return await until(control, store, job, lambda found: not found.live)


async def until(control: Controller, store: Store, job: Job, reached: Callable[[Job], bool]) -> Job:
    with control.changes.watch(job.id) as changed:
        async with asyncio.timeout(20):
            while True:
                changed.clear()
                found = await store.job(job.id)
                assert found is not None
                if reached(found):
                    return found
                await changed.wait()
