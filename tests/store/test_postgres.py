"""What is particular to PostgreSQL: another service, and connections that break."""

from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from tests.store.samples import creation, job
from tests.store.servers import Server
from turnout.errors import Misconfigured, TimedOut
from turnout.job import All
from turnout.store import Store, StoreError, Unanswered
from turnout.store import postgres as driver


@pytest.fixture
def url(postgres: Server) -> str:
    return postgres.database()


@pytest.fixture
async def store(url: str, tmp_path: Path) -> AsyncIterator[Store]:
    store = Store.open(url, tmp_path)
    yield store
    await store.close()


def end_all_other_connections(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


async def test_a_second_service_is_kept_out(
    store: Store, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(driver, "LOCK_SECONDS", 0.05)
    with pytest.raises(Misconfigured, match="another Turnout"):
        Store.open(url, tmp_path)
    await store.commit(creation(job("a")))


async def test_the_lock_goes_with_the_service(store: Store, url: str, tmp_path: Path):
    await store.close()
    await Store.open(url, tmp_path).close()


async def test_readers_do_not_notice_that_the_server_was_started_anew(store: Store, url: str):
    await store.commit(creation(job("a")))
    for _ in range(20):
        assert await store.count(All()) == 1
    end_all_other_connections(url)
    for _ in range(20):
        assert await store.count(All()) == 1


async def test_a_batch_that_meets_a_broken_connection_is_told_so_and_the_next_one_works(
    store: Store, url: str
):
    await store.commit(creation(job("a")))
    end_all_other_connections(url)
    with pytest.raises(StoreError):
        await store.commit(creation(job("b")))
    assert await store.count(All()) == 1
    await store.commit(creation(job("b")))
    assert await store.count(All()) == 2


async def test_a_service_that_lost_the_lock_to_another_writes_no_more(
    store: Store, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(driver, "LOCK_SECONDS", 0.05)
    await store.commit(creation(job("a")))
    end_all_other_connections(url)
    other = Store.open(url, tmp_path)
    for _ in ("the broken connection", "a new one"):
        with pytest.raises(StoreError):
            await store.commit(creation(job("b")))
    assert await other.count(All()) == 1
    await other.close()


async def test_a_server_that_does_not_answer(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(driver, "ANSWER_SECONDS", 1)
    store = Store.open(url, tmp_path)
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE jobs")
        with pytest.raises(Unanswered) as caught:
            await store.count(All())
        assert isinstance(caught.value, TimedOut)
    assert await store.count(All()) == 0
    await store.close()


def test_a_url_that_leads_nowhere(tmp_path: Path):
    with pytest.raises(Misconfigured, match=r"\[store\] url"):
        Store.open(f"postgresql://turnout@/turnout?host={tmp_path}", tmp_path)


def test_a_table_of_another_program_is_left_alone(url: str, tmp_path: Path):
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE jobs (title TEXT)")
    with pytest.raises(Misconfigured, match="not Turnout's"):
        Store.open(url, tmp_path)
