"""Jobs that name a key: what they say can be read through the store, and in no row or file of the database."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from msgspec.structs import replace

from tests.store.samples import SPEC, creation, gang, job, new
from turnout.job import Event, EventKind, Job, Page, PastAttempt, Reason, Spec, State
from turnout.job.query import All
from turnout.store import Batch, Store
from turnout.vault import KeyGone, KeyRing

NAME = "projects/p/locations/l/keyRings/r/cryptoKeys/k"
MARKER = "marker-4711"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_bytes(b"\1" * 32)
    return file


@pytest.fixture
def ring(file: Path) -> KeyRing:
    return KeyRing({NAME: str(file)})


class Place(NamedTuple):
    """Where the store is kept, to be looked at from behind."""

    url: str
    file: Path
    ring: KeyRing

    def open(self) -> Store:
        return Store.open(self.url, self.file, self.ring)

    def run(self, sql: Any) -> list[tuple[Any, ...]]:
        opened = psycopg.connect(self.url) if self.url else sqlite3.connect(self.file)
        with closing(opened) as connection:
            cursor = connection.execute(sql)
            found = cursor.fetchall() if cursor.description else []
            connection.commit()
            return found

    def shows(self, text: str) -> bool:
        """Whether it can be read somewhere: in the files of SQLite, in the rows of PostgreSQL."""
        if not self.url:
            return any(text.encode() in path.read_bytes() for path in self.file.parent.glob("turnout.db*"))
        tables = self.run("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
        assert len(tables) > 5
        rows = [row for (table,) in tables for row in self.run(f'SELECT * FROM "{table}"')]
        return any(
            text.encode() in (value if isinstance(value, bytes) else str(value).encode())
            for row in rows
            for value in row
        )


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path, ring: KeyRing) -> Place:
    url = request.getfixturevalue("postgres").database() if request.param == "postgres" else ""
    return Place(url, tmp_path / "turnout.db", ring)


@pytest.fixture
async def store(place: Place) -> AsyncIterator[Store]:
    store = place.open()
    yield store
    await store.close()


async def test_all_that_it_says_is_sealed_and_comes_back(store: Store, ring: KeyRing, place: Place):
    one = await _lived(store, ring)
    assert place.shows(one.name), "which is not sealed"
    assert not place.shows(MARKER)
    assert (await store.documents([one.id]))[one.id] == _document()
    assert (await store.spec(one.id)).lead.env == {"MARKER": MARKER}
    assert [event.message for event in await store.events(one.id)] == [f"created {MARKER}", f"ended {MARKER}"]
    assert [past.message for past in await store.past(one.id)] == [f"lost {MARKER}"]
    found = await store.job(one.id)
    assert found is not None
    assert found.message == f"failed {MARKER}"
    assert (await store.replicas([found]))[one.id][0].message == f"exited {MARKER}"
    assert [each.message for each in await store.find(All(), Page(limit=5))] == [f"failed {MARKER}"]


async def test_it_is_taken_up_again_by_another_service(store: Store, ring: KeyRing, place: Place):
    one = job("a")
    await store.commit(_creation(one, ring))
    await store.close()
    again = place.open()
    (live,) = await again.live()
    assert live.spec.lead.env == {"MARKER": MARKER}
    live.job.message = MARKER
    await again.commit(Batch(jobs=[live.job], events=[Event(one.id, 1, EventKind.NOTE, MARKER)]))
    assert (await again.events(one.id))[-1].message == MARKER
    await again.close()
    assert not place.shows(MARKER)


async def test_ordinary_jobs_beside_it_are_kept_as_they_are(store: Store, ring: KeyRing, place: Place):
    one, other = job("a"), job("b")
    batch = _creation(one, ring)
    batch.created.append(new(other, b'{"plain": 1}'))
    await store.commit(batch)
    ((document, spec),) = place.run(f"SELECT document, spec FROM documents WHERE job = {other.id}")
    assert document == b'{"plain": 1}'
    assert spec.startswith(b"{")


async def test_without_the_key_it_says_so_and_the_others_go_on(store: Store, ring: KeyRing, file: Path):
    other = job("other")
    await store.commit(creation(other))
    one = await _lived(store, ring)
    file.unlink()
    assert list(await store.documents([one.id, other.id])) == [other.id]
    found = await store.job(one.id)
    assert found is not None
    assert NAME in found.message
    assert found.state is State.FAILED
    with pytest.raises(KeyGone, match=NAME):
        await store.spec(one.id)
    assert all(NAME in event.message for event in await store.events(one.id))
    assert [each.name for each in await store.find(All(), Page(limit=5))] == ["a", "other"]


async def test_it_can_be_deleted_without_the_key(store: Store, ring: KeyRing, file: Path, place: Place):
    one = await _lived(store, ring)
    await store.close()
    file.unlink()
    again = place.open()
    found = await again.job(one.id)
    assert found is not None
    found.deleted = 10**18 + 5
    await again.commit(Batch(jobs=[found], events=[Event(one.id, 1, EventKind.DELETED, MARKER)]))
    found = await again.job(one.id)
    assert found is not None
    assert found.deleted
    assert "key is missing" in (await again.events(one.id))[-1].message
    await again.close()
    assert not place.shows(MARKER)


async def test_a_live_job_whose_key_is_missing_still_ends(
    store: Store, ring: KeyRing, file: Path, place: Place
):
    running, waiting = job("a"), job("b")
    running.state, running.attempt = State.RUNNING, 1
    await store.commit(_creation(running, ring))
    await store.commit(Batch(attempts=gang(running)))
    await store.commit(_creation(waiting, ring))
    await store.close()
    file.unlink()
    again = place.open()
    first, second = await again.live()
    assert [(role.name, role.replicas, role.leads) for role in first.spec.roles] == [
        ("master", 1, True),
        ("worker", 2, False),
    ]
    assert first.spec.key == second.spec.key == NAME
    assert second.spec.lead.program.argv == ()
    await again.close()


async def test_a_row_cannot_be_put_in_the_place_of_another(store: Store, ring: KeyRing, place: Place):
    one, other = job("a"), job("b")
    await store.commit(_creation(one, ring))
    await store.commit(_creation(other, ring))
    await store.commit(Batch(jobs=[replace(one, message="of a"), replace(other, message="of b")]))
    place.run(f"UPDATE jobs SET message = (SELECT message FROM jobs WHERE id = {other.id})")
    found = await store.job(one.id)
    assert found is not None
    assert "was changed" in found.message


async def _lived(store: Store, ring: KeyRing) -> Job:
    """A job with a whole life, all of it full of the marker."""
    one = job("a")
    await store.commit(_creation(one, ring))
    one.attempt, one.state = 1, State.RUNNING
    await store.commit(Batch(jobs=[one], attempts=gang(one)))
    replica = gang(one)[0]
    replica.message = f"exited {MARKER}"
    one.state, one.reason, one.message = State.FAILED, Reason.PROGRAM_FAILED, f"failed {MARKER}"
    await store.commit(
        Batch(
            jobs=[one],
            replicas=[replica],
            events=[Event(one.id, one.created, EventKind.ENDED, f"ended {MARKER}")],
            past=[PastAttempt(one.id, 1, None, 1, Reason.NODE_LOST, f"lost {MARKER}")],
        )
    )
    return one


def _creation(one: Job, ring: KeyRing) -> Batch:
    role = replace(SPEC.roles[0], env={"MARKER": MARKER})
    spec = Spec((role,), key=NAME, wrapped_key=ring.new(NAME).header.text)
    return Batch(
        created=[new(one, _document(), spec)],
        events=[Event(one.id, one.created, EventKind.CREATED, f"created {MARKER}")],
    )


def _document() -> bytes:
    return f'{{"env": "{MARKER}"}}'.encode()
