"""Operations on jobs on behalf of a caller."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.control.scripted import ScriptedEngine, opened
from tests.control.stepping import MASTER, gang
from turnout.engines import EngineRegistry
from turnout.errors import Invalid, NotFound
from turnout.job import Attempt, Label, NewJob, Page, PastAttempt, Reason, Replica, Sample
from turnout.service import Caller, Jobs
from turnout.store import Batch, Store

ANN, BOB = Caller("AKIDann", "vision"), Caller("AKIDbob", "speech")
NEW = NewJob("", "modelarts", "modelarts:0", "train", "train", "here", gang(), b"{}", labels={"kind": "job"})


@pytest.fixture
async def rooms(tmp_path: Path) -> AsyncIterator[tuple[Jobs, Store]]:
    engine = ScriptedEngine()
    async with opened(tmp_path, engine) as (control, store):
        engines = EngineRegistry({"local": engine}, {"here": "local"})  # type: ignore[dict-item]
        yield Jobs(store, control, engines), store


async def test_labels_find_jobs_of_the_own_project(rooms: tuple[Jobs, Store]) -> None:
    jobs, _ = rooms
    mine, query = await jobs.create(ANN, NEW), Label("kind", "=", "job")
    await jobs.create(BOB, NEW)
    assert [view.job.id for view in await jobs.find(ANN, query, Page(10))] == [mine.id]
    assert await jobs.count(ANN, query) == 1
    assert await jobs.labels([mine.id]) == {mine.id: {"kind": "job"}}


async def test_an_amendment_changes_what_is_given(rooms: tuple[Jobs, Store]) -> None:
    jobs, _ = rooms
    mine = await jobs.create(ANN, NEW)
    amended = await jobs.amend(ANN, mine.id, document=b'"new"', labels={"kind": "x"})
    assert (amended.id, amended.priority) == (mine.id, mine.priority)
    assert (await jobs.by_id(ANN, mine.id)).document == b'"new"'
    assert await jobs.count(ANN, Label("kind", "=", "x")) == 1
    await jobs.amend(ANN, mine.id, priority=3)
    view = await jobs.by_id(ANN, mine.id)
    assert (view.job.priority, view.document) == (3, b'"new"')


async def test_a_job_of_another_project_cannot_be_amended(rooms: tuple[Jobs, Store]) -> None:
    jobs, _ = rooms
    mine = await jobs.create(ANN, NEW)
    with pytest.raises(NotFound):
        await jobs.amend(BOB, mine.id, document=b"mine now")
    with pytest.raises(NotFound):
        await jobs.amend(ANN, 4711, document=b"new")


@pytest.mark.parametrize("labels", [{"a\0": "b"}, {"a": "\ud800"}, {"a": "训" * 700}])
async def test_labels_that_cannot_be_stored_do_not_fail_other_jobs(
    rooms: tuple[Jobs, Store], labels: dict[str, str]
) -> None:
    jobs, _ = rooms
    with pytest.raises(Invalid, match="the label"):
        await jobs.create(ANN, msgspec.structs.replace(NEW, labels=labels))
    mine = await jobs.create(ANN, NEW)
    with pytest.raises(Invalid, match="the label"):
        await jobs.amend(ANN, mine.id, labels=labels)


async def test_past_attempts_can_be_read(rooms: tuple[Jobs, Store]) -> None:
    jobs, store = rooms
    mine = await jobs.create(ANN, NEW)
    view = await jobs.by_id(ANN, mine.id)
    past = PastAttempt(mine.id, 1, 1, 2, Reason.HUNG, "nothing moved", "master-0")
    replica, sample = Replica(mine.id, 1, "master", 0), Sample(MASTER, 1, 50.0)
    await store.commit(Batch(past=[past], attempts=[replica], samples=[(Attempt(mine.id, 1), sample)]))
    assert await jobs.past(view) == [past]
    assert await jobs.replicas(view, 1) == (replica,)
    assert await jobs.replicas(view, 2) == ()
    assert await jobs.samples(view, MASTER) == [sample]
