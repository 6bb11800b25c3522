"""A database that is not fit for it is refused at the start, in words that say what to do."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.store.samples import creation, job
from tests.store.servers import Server
from turnout.errors import Misconfigured
from turnout.store import Store, postgres_check


def name_of(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1", "EUC_CN"])
def test_an_encoding_that_cannot_hold_all_text(postgres: Server, tmp_path: Path, encoding: str):
    url = postgres.database(encoding)
    with pytest.raises(Misconfigured, match=rf"encoding {encoding}.*createdb -E UTF8 -T template0"):
        Store.open(url, tmp_path)


async def test_what_it_says_works(postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Whatever the environment says of what clients speak."""
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    store = Store.open(postgres.database("UTF8"), tmp_path)
    one = job("\N{SNOWMAN}-训练")
    await store.commit(creation(one))
    assert await store.by_handle(one.project, one.scope, one.handle) == one
    await store.close()


def test_an_old_server(postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(postgres_check, "OLDEST", 99)
    with pytest.raises(Misconfigured, match=r"PostgreSQL \d+\.\d+: Turnout needs 99 or newer"):
        Store.open(postgres.database(), tmp_path)


async def test_a_user_who_may_not_make_tables(postgres: Server, tmp_path: Path):
    name, user = name_of(postgres.database()), postgres.user()
    postgres.run(name, "REVOKE CREATE ON SCHEMA public FROM public")
    with pytest.raises(Misconfigured, match=f'GRANT CREATE ON SCHEMA "public" TO "{user}"'):
        Store.open(postgres.url(name, user), tmp_path)
    postgres.run(name, f'GRANT CREATE ON SCHEMA "public" TO "{user}"')
    await Store.open(postgres.url(name, user), tmp_path).close()


async def test_a_user_who_has_no_schema(postgres: Server, tmp_path: Path):
    name, user = name_of(postgres.database()), postgres.user()
    postgres.run(name, f"ALTER ROLE {user} SET search_path = nowhere")
    with pytest.raises(Misconfigured, match=f'ALTER ROLE "{user}" SET search_path = public'):
        Store.open(postgres.url(name, user), tmp_path)


async def test_a_user_who_may_not_write_what_is_there(postgres: Server, tmp_path: Path):
    url, user = postgres.database(), postgres.user()
    await Store.open(url, tmp_path).close()
    name = name_of(url)
    postgres.run(
        name, f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {user}", f"GRANT ALL ON jobs TO {user}"
    )
    with pytest.raises(Misconfigured, match=r"may not read and write the tables .*events.*GRANT SELECT"):
        Store.open(postgres.url(name, user), tmp_path)


def test_a_database_that_is_read_only(postgres: Server, tmp_path: Path):
    url = postgres.database()
    name = name_of(url)
    postgres.run(name, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(Misconfigured, match=f'ALTER DATABASE "{name}" SET default_transaction_read_only'):
        Store.open(url, tmp_path)
