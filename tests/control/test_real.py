"""The loop with real processes: what engines do when gangs are ended for others, or start over."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.engines.local.harness import UnrestrictedHostPaths
from turnout import config
from turnout.control import Controller
from turnout.engines import EngineRegistry
from turnout.engines.local import LocalEngine
from turnout.job import (
    EventKind,
    Job,
    NewJob,
    Policy,
    Program,
    Reason,
    Resources,
    Retry,
    Role,
    Spec,
    State,
)
from turnout.paths import Paths
from turnout.store import Store

PATIENCE = 60
COUNT = "echo x >> $SHARED/$NAME; n=$(wc -l < $SHARED/$NAME); "


class Place:
    """A directory that jobs can write to, and a service with one GPU in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.shared = root / "shared"
        self.shared.mkdir(mode=0o777)
        self.shared.chmod(0o777)

    @asynccontextmanager
    async def service(self) -> AsyncIterator[tuple[Controller, Store]]:
        settings = config.load(flags={"engines": {"local": {"sandbox": "none", "gpus": 1}}})
        engine = LocalEngine(Paths(self.root / "data"), settings, UnrestrictedHostPaths())
        store = Store.open("", self.root / "turnout.db")
        control = Controller(store, EngineRegistry({"local": engine}, {"here": "local"}))
        await engine.open()
        await control.start()
        try:
            yield control, store
        finally:
            await control.close()
            await engine.close()
            await store.close()

    def job(self, name: str, script: str, **policy: object) -> NewJob:
        """A script that needs the GPU; `$n` says how often it has been started."""
        env = {"SHARED": str(self.shared), "NAME": name}
        program = Program(("sh", "-c", COUNT + script))
        role = Role("master", program, resources=Resources(gpus=1), env=env, leads=True)
        spec = Spec((role,), policy=Policy(**{"grace": 5, "priority": 0} | policy))  # type: ignore[arg-type]
        return NewJob("p", "tia", "tia:here", name, name, "here", spec, b"{}")

    def starts(self, name: str) -> int:
        return len((self.shared / name).read_text().split())


@pytest.fixture
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="turnout-", ignore_cleanup_errors=True) as name:
        os.chmod(name, 0o755)
        yield Place(Path(name))


async def reached(control: Controller, store: Store, job: Job, holds: Callable[[Job], bool]) -> Job:
    with control.changes.watch(job.id) as changed:
        async with asyncio.timeout(PATIENCE):
            while True:
                changed.clear()
                found = await store.job(job.id)
                assert found is not None
                if holds(found):
                    return found
                await changed.wait()


def over(job: Job) -> bool:
    return not job.live


def runs(job: Job) -> bool:
    return job.state is State.RUNNING


async def test_a_job_makes_way_for_another_and_comes_back(place: Place) -> None:
    polite = 'if [ $n -gt 1 ]; then exit 0; fi; trap "exit 0" TERM; while :; do sleep 0.1; done'
    async with place.service() as (control, store):
        victim = await control.create(place.job("victim", polite, preemptible=True))
        await reached(control, store, victim, runs)
        urgent = await control.create(place.job("urgent", "exit 0", priority=1))
        assert (await reached(control, store, urgent, over)).state is State.SUCCEEDED
        found = await reached(control, store, victim, over)
        assert (found.state, found.attempt, place.starts("victim")) == (State.SUCCEEDED, 2, 2)
        past = await store.past(victim.id)
        assert [(one.reason, one.replica) for one in past] == [(Reason.PREEMPTED, "")]
        kinds = [event.kind for event in await store.events(victim.id)]
        assert kinds.index(EventKind.PREEMPTED) < kinds.index(EventKind.RETRIED)


async def test_a_job_that_was_killed_starts_over_also_if_the_service_is_another_by_then(place: Place) -> None:
    killed = Retry((Reason.KILLED,), 2)
    script = "while [ ! -e $SHARED/go$n ]; do sleep 0.05; done; if [ $n -gt 2 ]; then exit 0; fi; kill -9 $$"
    async with place.service() as (control, store):
        job = await control.create(place.job("one", script, retries=(killed,)))
        await reached(control, store, job, runs)
        (place.shared / "go1").touch()
        await reached(control, store, job, lambda found: found.attempt == 2 and runs(found))
    (place.shared / "go2").touch()
    async with place.service() as (control, store):
        await reached(control, store, job, lambda found: found.attempt == 3 and runs(found))
        (place.shared / "go3").touch()
        found = await reached(control, store, job, over)
        assert (found.state, place.starts("one")) == (State.SUCCEEDED, 3)
        past = await store.past(job.id)
        assert [(one.reason, one.replica) for one in past] == [(Reason.KILLED, "master-0")] * 2
        told = [event.message for event in await store.events(job.id) if event.kind is EventKind.RETRIED]
        assert told[-1].endswith("attempt 3 follows (retry 2 of 2)")


async def test_a_preempted_job_can_be_stopped_while_it_waits(place: Place) -> None:
    async with place.service() as (control, store):
        victim = await control.create(place.job("victim", "sleep 1000", preemptible=True))
        await reached(control, store, victim, runs)
        urgent = await control.create(place.job("urgent", "sleep 1000", priority=1))
        await reached(control, store, urgent, runs)
        await control.stop(victim.id, "alice")
        found = await reached(control, store, victim, over)
        assert (found.state, found.attempt) == (State.STOPPED, 1)
        await control.delete(victim.id, "alice")
        await control.stop(urgent.id, "alice")
        await reached(control, store, urgent, over)
