import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.engines.local.yard import Yard


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user can get into: jobs run as another user when the tests run as root."""
    with tempfile.TemporaryDirectory(prefix="turnout-", ignore_cleanup_errors=True) as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture(params=["none", "bubblewrap"])
async def yard(place: Path, request: pytest.FixtureRequest) -> AsyncIterator[Yard]:
    """A local engine that is open, with the sandbox and without."""
    async with Yard(place, sandbox=request.param) as one:
        yield one


@pytest.fixture
async def bare_yard(place: Path) -> AsyncIterator[Yard]:
    async with Yard(place, sandbox="none") as one:
        yield one


@pytest.fixture
async def boxed_yard(place: Path) -> AsyncIterator[Yard]:
    async with Yard(place, sandbox="bubblewrap") as one:
        yield one
