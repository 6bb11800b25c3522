"""Replicas that start again in their place: the whole loop, real processes, and somebody killed in the middle."""

import asyncio
from pathlib import Path

import pytest

from tests.control.test_real import Place, over, place, reached, runs
from turnout import chaos
from turnout.control import Controller
from turnout.engines import Unreachable
from turnout.engines.local import LocalEngine
from turnout.job import EventKind, Job, Reason, Replica, Retry, State
from turnout.store import Store

__all__ = ["place"]

LOST = (Reason.KILLED, Reason.NODE_LOST)
IN_PLACE = Retry(LOST, 2, not_codes=(134,))
ONCE = "if [ $n -gt 1 ]; then exit 0; fi; "


async def outcome(control: Controller, store: Store, job: Job) -> tuple[Job, Replica]:
    found = await reached(control, store, job, over)
    (replica,) = (await store.replicas([found]))[found.id]
    return found, replica


async def test_one_that_is_killed_starts_again_in_the_same_attempt(place: Place) -> None:
    async with place.service() as (control, store):
        job = await control.create(place.job("one", ONCE + "kill -9 $$", in_place=IN_PLACE))
        found, replica = await outcome(control, store, job)
        assert (found.state, found.attempt, place.starts("one")) == (State.SUCCEEDED, 1, 2)
        assert (replica.restarts, replica.exit_code) == (1, 0)
        told = [event.message for event in await store.events(job.id) if event.kind is EventKind.RESTARTED]
        assert told == ["master-0 was killed by SIGKILL; it is restarted in place (retry 1 of 2)"]


async def test_after_so_many_times_the_whole_job_starts_over(place: Place) -> None:
    script = "if [ $n -gt 3 ]; then exit 0; fi; kill -9 $$"
    async with place.service() as (control, store):
        policy = {"in_place": IN_PLACE, "retries": (Retry(LOST, 1),)}
        job = await control.create(place.job("one", script, **policy))
        found, replica = await outcome(control, store, job)
        assert (found.state, found.attempt, replica.restarts) == (State.SUCCEEDED, 2, 0)
        (past,) = await store.past(job.id)
        assert (past.reason, past.replica, past.code) == (Reason.KILLED, "master-0", 137)


async def test_a_crash_is_for_the_whole_job(place: Place) -> None:
    crashes = Retry((Reason.KILLED, Reason.PROGRAM_FAILED), 1, codes=(134,))
    async with place.service() as (control, store):
        job = await control.create(
            place.job(
                "one", "kill -ABRT $$", in_place=IN_PLACE, retries=(crashes, Retry(LOST, 1, not_codes=(134,)))
            )
        )
        found, replica = await outcome(control, store, job)
        assert (found.state, found.attempt, replica.restarts) == (State.FAILED, 2, 0)


async def test_the_next_service_does_what_the_last_had_only_decided(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(*_: object) -> None:
        raise Unreachable("it is gone")

    async with place.service() as (control, store):
        with monkeypatch.context() as patched:
            patched.setattr(LocalEngine, "restart", gone)
            job = await control.create(place.job("one", ONCE + "kill -9 $$", in_place=IN_PLACE))
            with control.changes.watch(job.id) as changed:
                while not any(e.kind is EventKind.RESTARTED for e in await store.events(job.id)):
                    await changed.wait()
                    changed.clear()
    assert place.starts("one") == 1
    async with place.service() as (control, store):
        found, replica = await outcome(control, store, job)
        assert (found.state, found.attempt, place.starts("one")) == (State.SUCCEEDED, 1, 2)
        assert replica.restarts == 1


@pytest.mark.parametrize("point", ["supervisor.again", "supervisor.respawned"])
async def test_a_supervisor_that_is_killed_in_the_middle(
    place: Place, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the exit code of one that no supervisor sees any more being lost, it may take one more start."""
    script = (
        "if [ $n -gt 1 ]; then while [ ! -e $SHARED/go ]; do sleep 0.05; done; fi; [ $n -gt 1 ] || kill -9 $$"
    )
    monkeypatch.setattr(chaos, "kill_at", point)
    async with place.service() as (control, store):
        monkeypatch.setattr(chaos, "kill_at", "")
        job = await control.create(place.job("one", script, in_place=IN_PLACE))
        await reached(control, store, job, runs)
        await counted(place.shared / "one", 2)
        assert place.starts("one") == 2
        (place.shared / "go").touch()
        found, replica = await outcome(control, store, job)
        assert (found.state, found.attempt) == (State.SUCCEEDED, 1)
        assert replica.restarts in ((1,) if point == "supervisor.again" else (1, 2))


async def counted(file: Path, times: int) -> None:

    async with asyncio.timeout(30):
        while not file.exists() or len(file.read_text().split()) < times:  # noqa: ASYNC110 nobody tells of it
            await asyncio.sleep(0.02)
