"""Rows that cannot be read and reports that cannot be taken in: each costs its own job at most."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.control.scripted import ScriptedEngine, ended, new, opened, until
from tests.control.stepping import MASTER, gang
from turnout.control import reports
from turnout.control.live_jobs import LiveJobs
from turnout.errors import WrongState
from turnout.job import All, Job, Page, Reason, Started, State


def damage(tmp_path: Path, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(tmp_path / "turnout.db")) as database:
        assert database.execute(sql, values).rowcount > 0
        database.commit()


SPEC = "UPDATE documents SET spec = ? WHERE job = ?"


@pytest.mark.parametrize(
    ("what", "value"),
    [
        (SPEC, b'{"roles": ['),
        (SPEC, b'{"roles": []}'),
        (SPEC, b"\xff\x00"),
        ("UPDATE jobs SET state = ? WHERE id = ?", 7),
        ("UPDATE jobs SET reason = ? WHERE id = ?", 99),
        ("UPDATE jobs SET created = ? WHERE id = ?", "yesterday"),
        ("UPDATE jobs SET created = ? WHERE id = ?", b"\xff"),
        ("UPDATE jobs SET updated = ? WHERE id = ?", "today"),
        ("UPDATE jobs SET updated = ? WHERE id = ?", b"\xff"),
        ("UPDATE replicas SET state = ? WHERE job = ?", 77),
        ("UPDATE replicas SET started = ? WHERE job = ?", "now"),
        ("UPDATE replicas SET gpus = ? WHERE job = ?", "a,b"),
        ("UPDATE replicas SET role = ? WHERE job = ?", "nobody"),
    ],
)
async def test_a_job_that_cannot_be_read_ends_and_the_others_go_on(
    tmp_path: Path, what: str, value: object
) -> None:
    async with opened(tmp_path, engine := ScriptedEngine(cpu=2)) as (control, store):
        engine.sync()
        broken = await control.create(new("broken"))
        good = await control.create(new("good"))
        waits = await control.create(new("waits"))
        for job in (broken, good):
            engine.said.put_nowait(Started(job.current, MASTER, 1, 2, "127.0.0.9"))
            await until(control, store, job, lambda found: found.state is State.RUNNING)
    damage(tmp_path, what, value, broken.id)
    async with opened(tmp_path, engine := ScriptedEngine(cpu=2)) as (control, store):
        engine.sync(broken.current, good.current)
        found = await until(
            control, store, broken, lambda job: "read:" in job.message or "all" in job.message
        )
        assert (found.state, found.reason) == (State.FAILED, Reason.NODE_LOST)
        await until(control, store, waits, lambda job: job.state is State.PREPARING)
        assert ("stop", broken.current) in engine.asked
        engine.run(good)
        assert (await ended(control, store, good)).state is State.SUCCEEDED
        assert len(await store.find(All(), Page(10))) == 3
        assert control.running()
    async with opened(tmp_path, engine := ScriptedEngine()) as (control, store):
        engine.sync(waits.current)
        assert (await store.job(broken.id)) == found


async def test_a_job_that_waits_and_cannot_be_read_ends(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedEngine()) as (control, _):
        broken = await control.create(new("broken"))
        good = await control.create(new("good"))
    damage(tmp_path, SPEC, b"{}", broken.id)
    async with opened(tmp_path, engine := ScriptedEngine()) as (control, store):
        engine.sync()
        assert (await ended(control, store, broken)).reason is Reason.NODE_LOST
        await until(control, store, good, lambda job: job.state is State.PREPARING)
        with pytest.raises(WrongState, match=f"the spec of job {broken.id} cannot be read"):
            await store.spec(broken.id)
        assert f"the spec of job {broken.id}" in store.unreadable.found


async def test_what_is_told_of_a_job_is_read_row_by_row(tmp_path: Path) -> None:
    async with opened(tmp_path, engine := ScriptedEngine()) as (control, store):
        engine.sync()
        job = await control.create(new("one"))
        damage(tmp_path, "UPDATE events SET kind = 99 WHERE message LIKE 'created%' AND job = ?", job.id)
        damage(tmp_path, "UPDATE replicas SET state = 99 WHERE job = ?", job.id)
        assert [str(event.kind) for event in await store.events(job.id)] == ["placed"]
        assert await store.gang(job.current) == []
        damage(tmp_path, "UPDATE jobs SET state = 99 WHERE id = ?", job.id)
        found = await store.find(All(), Page(10))
        assert [(one.state, one.message) for one in found] == [(State.FAILED, "its record cannot be read")]


async def test_a_report_that_cannot_be_taken_in_ends_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison: list[Job] = []
    take = reports._started

    def poisoned(live_jobs: LiveJobs, report: Started) -> None:
        if report.attempt.job == poison[0].id:
            raise ZeroDivisionError
        take(live_jobs, report)

    monkeypatch.setattr(reports, "_started", poisoned)
    async with opened(tmp_path, engine := ScriptedEngine()) as (control, store):
        engine.sync()
        poison.append(await control.create(new("poison")))
        good = await control.create(new("good", gang()))
        for job in (poison[0], good):
            engine.said.put_nowait(Started(job.current, MASTER, 1, 2, "127.0.0.9"))
        found = await ended(control, store, poison[0])
        assert (found.state, found.reason) == (State.FAILED, Reason.NODE_LOST)
        await until(control, store, good, lambda job: job.state is State.RUNNING)
        async with asyncio.timeout(20):
            while ("stop", poison[0].current) not in engine.asked:
                engine.called.clear()
                await engine.called.wait()
        assert control.running()
