from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.store import servers
from turnout.store import Store


@pytest.fixture(scope="session")
def postgres() -> Iterator[servers.Server]:
    with servers.running() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def opening(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Opens the same database each time: the conformance suite runs on both kinds."""
    url = request.getfixturevalue("postgres").database() if request.param == "postgres" else ""
    return lambda: Store.open(url, tmp_path / "turnout.db")


@pytest.fixture
async def store(opening: Callable[[], Store]) -> AsyncIterator[Store]:
    store = opening()
    yield store
    await store.close()
