"""The loop around the machine, on a real store, with an engine that does what the test says."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.control.machine_room import MASTER, gang
from turnout.control import Control, commands
from turnout.control.board import Board
from turnout.control.turn import Create
from turnout.engines import Refused, Unreachable
from turnout.errors import AlreadyExists, TimedOut
from turnout.job import (
    Attempt,
    Capacity,
    Cause,
    Ended,
    EventKind,
    Job,
    Launch,
    NewJob,
    Node,
    Reason,
    ReplicaName,
    Report,
    Retry,
    Sample,
    Sampled,
    Spec,
    Started,
    State,
    Synced,
)
from turnout.job.resources import GIB
from turnout.store import Batch, Store, StoreError


class Puppet:
    """An engine on strings: it records what it is asked for, and reports what the test puts in."""

    places = True

    def __init__(self, cpu: int = 4) -> None:
        self.said: asyncio.Queue[Report] = asyncio.Queue()
        self.asked: list[tuple[str, Attempt]] = []
        self.fails: list[Exception] = []
        self.said.put_nowait(Capacity((Node("this", cpu, 16 * GIB, 0),)))

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def reports(self) -> AsyncIterator[Report]:
        while True:
            yield await self.said.get()

    def runtime(self, name: str) -> str:
        return name

    async def start(self, launch: Launch) -> None:
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
        if self.fails:
            raise self.fails.pop()

    def sync(self, *held: Attempt) -> None:
        self.said.put_nowait(Synced(frozenset(held)))

    def run(self, job: Job, code: int = 0) -> None:
        self.said.put_nowait(Started(job.current, MASTER, 1, 2, "127.0.0.9"))
        self.said.put_nowait(Ended(job.current, MASTER, 3, Cause.EXIT, code))


class Fragile(Store):
    """The real store, which fails to write when the test says so."""

    broken = False

    async def commit(self, batch: Batch) -> None:
        if self.broken:
            raise StoreError("the disk is full")
        await super().commit(batch)


@asynccontextmanager
async def house(tmp_path: Path, engine: Puppet) -> AsyncIterator[tuple[Control, Fragile]]:
    opened = Store.open("", tmp_path / "turnout.db")
    store = Fragile(opened._driver)
    control = Control(store, {"local": engine}, {"here": "local"})  # type: ignore[dict-item]
    await control.start()
    try:
        yield control, store
    finally:
        await control.close()
        await store.close()


def new(name: str, spec: Spec | None = None) -> NewJob:
    return NewJob("p", "tia", "tia:here", name, name, "here", spec or gang(), b"{}")


async def ended(control: Control, store: Store, job: Job) -> Job:
    return await until(control, store, job, lambda found: not found.live)


async def until(control: Control, store: Store, job: Job, reached: Callable[[Job], bool]) -> Job:
    with control.hub.watch(job.id) as changed:
        async with asyncio.timeout(20):
            while True:
                changed.clear()
                found = await store.job(job.id)
                assert found is not None
                if reached(found):
                    return found
                await changed.wait()


async def test_a_life(tmp_path: Path) -> None:
    engine = Puppet()
    async with house(tmp_path, engine) as (control, store):
        engine.sync()
        job = await control.create(new("one"))
        assert (await store.job(job.id)) is not None, "on disk before the answer"
        engine.run(job)
        assert (await ended(control, store, job)).state is State.SUCCEEDED
        assert [what for what, _ in engine.asked] == ["start", "forget"]
        with pytest.raises(AlreadyExists):
            await control.create(new("one"))
        await control.delete(job.id, "alice")
        await control.create(new("one"))


async def test_a_commit_that_fails_has_not_happened(tmp_path: Path) -> None:
    engine = Puppet()
    async with house(tmp_path, engine) as (control, store):
        engine.sync()
        running = await control.create(new("running"))
        store.broken = True
        with pytest.raises(TimedOut, match="disk is full"):
            await control.create(new("one"))
        assert await store.by_handle("p", "tia:here", "one") is None
        engine.run(running, code=4)
        await asyncio.sleep(0.05)
        store.broken = False
        # What the engine reported meanwhile is not lost.
        assert (await ended(control, store, running)).message == "master-0 exited with code 4"
        await control.create(new("one"))
        assert [what for what, _ in engine.asked] == ["start", "forget", "start"]


async def test_what_the_engine_refuses_fails_with_its_words(tmp_path: Path) -> None:
    engine = Puppet()
    async with house(tmp_path, engine) as (control, store):
        engine.sync()
        engine.fails = [Refused("no such volume")]
        job = await ended(control, store, await control.create(new("one")))
        assert (job.state, job.reason) == (State.FAILED, Reason.REFUSED)
        assert "no such volume" in job.message


async def test_what_the_engine_did_not_hear_is_said_again(tmp_path: Path) -> None:
    engine = Puppet()
    async with house(tmp_path, engine) as (control, store):
        engine.sync()
        engine.fails = [Unreachable("gone")]
        job = await control.create(new("one"))
        engine.sync()
        engine.run(job)
        await ended(control, store, job)
        assert [what for what, _ in engine.asked] == ["start", "start", "forget"]


async def test_whoever_waits_is_let_go_at_the_end(tmp_path: Path) -> None:
    engine = Puppet()
    async with house(tmp_path, engine) as (control, _):
        with control.hub.watch(1) as changed:
            control.hub.close()
            assert changed.is_set()
        with control.hub.watch(2) as changed:
            assert changed.is_set()


async def test_it_sleeps_when_nothing_happens(tmp_path: Path) -> None:
    """No timer is set and no task is due: the loop has nothing to wake up for."""
    engine = Puppet()
    async with house(tmp_path, engine) as (control, store):
        engine.sync()
        job = await control.create(new("one"))
        engine.run(job)
        await ended(control, store, job)
        await asyncio.sleep(0.05)
        assert control._timer is None
        assert not control._wake.is_set()


async def test_an_engine_that_has_an_accident_hurts_one_job_only(tmp_path: Path) -> None:
    engine = Puppet()
    async with house(tmp_path, engine) as (control, store):
        engine.sync()
        engine.fails = [OSError("File name too long")]
        job = await ended(control, store, await control.create(new("one")))
        assert (job.state, job.reason) == (State.FAILED, Reason.REFUSED)
        assert "File name too long" in job.message
        assert (await control.create(new("two"))).state is State.PREPARING
        assert control.running()


async def test_an_input_that_cannot_be_digested_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fault of ours it is: the others of its turn are served, and the loop goes on."""
    engine = Puppet()
    create = commands.create

    def poisoned(board: Board, command: Create) -> Job:
        if command.new.name == "poison":
            raise ZeroDivisionError
        return create(board, command)

    monkeypatch.setattr(commands, "create", poisoned)
    async with house(tmp_path, engine) as (control, store):
        engine.sync()
        names = ["a", "poison", "b"]
        answers = await asyncio.gather(*(control.create(new(name)) for name in names), return_exceptions=True)
        assert [isinstance(answer, Job) for answer in answers] == [True, False, True]
        assert "something went wrong" in str(answers[1])
        assert await store.by_handle("p", "tia:here", "b") is not None
        assert control.running()


class TestRestart:
    """The service ends and another takes its place, on the same store."""

    async def test_what_was_used_up_of_the_retries_stays_used_up(self, tmp_path: Path) -> None:
        once = gang(retries=(Retry((Reason.PROGRAM_FAILED,), 1),))
        engine = Puppet()
        async with house(tmp_path, engine) as (control, store):
            engine.sync()
            job = await control.create(new("one", once))
            engine.run(job, code=4)
            again = await until(control, store, job, lambda found: found.attempt == 2)
            assert [past.reason for past in await store.past(job.id)] == [Reason.PROGRAM_FAILED]
        engine = Puppet()
        async with house(tmp_path, engine) as (control, store):
            engine.sync(again.current)
            engine.run(again, code=5)
            found = await ended(control, store, job)
            assert (found.state, found.message) == (State.FAILED, "master-0 exited with code 5")
            kinds = [event.kind for event in await store.events(job.id)]
            assert kinds.count(EventKind.RETRIED) == 1

    async def test_a_preemption_that_was_begun_is_carried_through(self, tmp_path: Path) -> None:
        engine = Puppet(cpu=1)
        async with house(tmp_path, engine) as (control, store):
            engine.sync()
            victim = await control.create(new("victim", gang(preemptible=True)))
            urgent = await control.create(new("urgent", gang(priority=1)))
            assert engine.asked[-1] == ("stop", victim.current)
        engine = Puppet(cpu=1)
        async with house(tmp_path, engine) as (control, store):
            engine.sync(victim.current)
            engine.said.put_nowait(Ended(victim.current, MASTER, 3, Cause.STOPPED))
            await until(control, store, urgent, lambda found: found.state is State.PREPARING)
            found = await store.job(victim.id)
            assert found is not None
            assert (found.state, found.attempt) == (State.QUEUED, 1)
            assert [past.reason for past in await store.past(victim.id)] == [Reason.PREEMPTED]


async def test_an_amendment_is_on_disk_before_the_answer(tmp_path: Path) -> None:
    engine = Puppet(cpu=1)
    async with house(tmp_path, engine) as (control, store):
        engine.sync()
        running = await control.create(new("running"))
        job = await control.create(new("one"))
        amended = await control.amend(job.id, "alice", document=b"{2}", priority=3, labels={"a": "b"})
        assert await store.job(job.id) == amended
        assert amended.priority == 3
        assert await store.documents([job.id]) == {job.id: b"{2}"}
        assert await store.labels([job.id]) == {job.id: {"a": "b"}}
        engine.run(running)
        await ended(control, store, running)
        await control.amend(running.id, "alice", document=b"{3}")
        assert await store.documents([running.id]) == {running.id: b"{3}"}


async def test_who_has_waited_long_enough_is_let_go_by_the_one_timer(tmp_path: Path) -> None:
    engine = Puppet(cpu=1)
    async with house(tmp_path, engine) as (control, store):
        engine.sync()
        await control.create(new("running"))
        job = await control.create(new("one", gang(max_wait=0.05)))
        assert (await ended(control, store, job)).reason is Reason.WAITED
        await asyncio.sleep(0)
        assert control._timer is None


async def test_samples_come_to_the_store(tmp_path: Path) -> None:
    engine = Puppet()
    async with house(tmp_path, engine) as (control, store):
        engine.sync()
        job = await control.create(new("one"))
        samples = [Sample(MASTER, at, cpu=50.0) for at in (1, 2)]
        for sample in samples:
            engine.said.put_nowait(Sampled(job.current, (sample,)))
        engine.run(job)
        await ended(control, store, job)
        assert await store.samples(job.id, MASTER) == samples
