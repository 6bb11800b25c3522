"""Whatever stands in any column of any table: the service starts, and other jobs go on as if nothing had happened."""

import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.control.scripted import ScriptedEngine, ended, new, opened, until
from tests.control.stepping import MASTER
from turnout.errors import WrongState
from turnout.job import (
    All,
    Asset,
    Attempt,
    AuditLine,
    Delivery,
    Job,
    Measurement,
    NewJob,
    Page,
    PastAttempt,
    Reason,
    Sample,
    Search,
    Spec,
    Started,
    State,
    Submission,
    Trial,
)
from turnout.store import Batch, Store
from turnout.store.keys import StoredKey
from turnout.store.schema import metadata

VALUES = ("'text'", "x'ff00'", "CAST(x'ff' AS TEXT)", "1.5", "-1", str(1 << 62), "NULL")

COLUMNS = [
    (table.name, column.name)
    for table in metadata.sorted_tables
    for column in table.columns
    # SQLite itself sees to its own row numbers.
    if (table.name, column.name)
    not in (
        ("jobs", "id"),
        ("documents", "job"),
        *((table, "number") for table in ("events", "audit", "deliveries")),
    )
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whole")


async def filled(place: Path) -> tuple[Job, Job, Job]:
    """A job that runs, another one, and a search. There is a row of theirs in every table."""
    async with opened(place, engine := ScriptedEngine(cpu=8)) as (control, store):
        engine.sync()
        broken = await control.create(new("broken"))
        good = await control.create(new("good"))
        for job in (broken, good):
            engine.said.put_nowait(Started(job.current, MASTER, 1, 2, "127.0.0.9"))
            await until(control, store, job, lambda found: found.state is State.RUNNING)
        spec = Spec(new("").spec.roles, search=Search((), (), ()))
        search = await control.create(NewJob("p", "tia", "tia:here", "search", "search", "here", spec, b"{}"))
        await store.commit(
            Batch(
                labels=[(broken.id, {"key": "value"})],
                submissions=[Submission(broken.id, 1, "local", "4711")],
                past=[PastAttempt(broken.id, 0, 1, 2, Reason.HUNG, "it hung")],
                samples=[(Attempt(broken.id, 1), Sample(MASTER, 3, 1.0))],
                new_trials=[Trial(search.id, 0, "abcdabcd", 0, {"x": 1.0}, 77, 5)],
                audit=[AuditLine(1, "root", "p", "::1", "tia", "CreateJob", broken.id, "broken", 200, "")],
                deliveries=[Delivery("msg_1", "hook", "p", broken.id, 1, b"{}")],
                measurements=[Measurement(search.id, 0, 1, 6, {"loss": 1.0})],
            )
        )
        await store.keys.add(StoredKey("id", "secret", "p", "", 1))
        await store.keys.add(StoredKey("other", "secret", "p", "", 1))
        await store.assets.create(Asset("p", "algorithm", "a", "s", "name", 1, 2, b"{}"))
        await store.assets.create(Asset("p", "algorithm", "b", "s", "other", 1, 2, b"{}"))
    return broken, good, search


JOBS: list[tuple[Job, Job, Job]] = []


@pytest.mark.parametrize(("table", "column"), COLUMNS)
async def test_any_value_in_any_column(whole: Path, tmp_path: Path, table: str, column: str) -> None:
    if not JOBS:
        JOBS.append(await filled(whole))
    broken, good, search = JOBS[0]
    which = {"jobs": f"id = {broken.id}", "documents": f"job = {broken.id}", "keys": "id = 'id'"}
    which |= {"assets": "id = 'a'", "trials": "1", "measurements": "1"}
    for number, value in enumerate(VALUES):
        place = tmp_path / str(number)
        place.mkdir()
        shutil.copy(whole / "turnout.db", place)
        with closing(sqlite3.connect(place / "turnout.db")) as database:
            rows = which.get(table, f"job = {broken.id}")
            try:
                database.execute(f'UPDATE {table} SET "{column}" = {value} WHERE {rows}')
            except sqlite3.IntegrityError:
                continue  # no such value can be there
            assert database.total_changes
            database.commit()
        async with opened(place, engine := ScriptedEngine(cpu=8)) as (control, store):
            engine.sync(broken.current, good.current)
            engine.run(good)
            assert (await ended(control, store, good)).state is State.SUCCEEDED, value
            assert control.running()
            await read_all(store, broken, search)


async def read_all(store: Store, broken: Job, search: Job) -> None:
    found = await store.find(All(), Page(10))
    assert len(found) in (2, 3)
    assert len(await store.keys.all()) in (1, 2)
    assert len(await store.assets.find("p", "algorithm", None, "")) in (1, 2)
    now = time.time_ns()
    await store.retention.deleted(now)
    await store.retention.ended(now)
    await store.finished_attempts([broken.current, search.current], now)
    for job in (broken, search):
        await store.job(job.id)
        for read in (store.events, store.past, store.trials.of, store.trials.measurements):
            await read(job.id)
        await store.trials.cursor(job.id, 0)
        await store.samples(job.id, MASTER)
        for many in (store.documents, store.labels):
            await many([job.id])
        await store.replicas([job])
        try:
            await store.spec(job.id)
        except WrongState as error:
            assert "cannot be read" in error.message  # noqa: PT017 (it may be whole)
