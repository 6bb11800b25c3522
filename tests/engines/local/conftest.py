import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.engines.local.harness import IN_IMAGE, EngineHarness, kinds


@pytest.fixture
def base_dir() -> Iterator[Path]:
    """A directory that every user can enter: jobs run as another user when the tests run as root."""
    with tempfile.TemporaryDirectory(prefix="turnout-", ignore_cleanup_errors=True) as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture(params=[pytest.param("none", marks=pytest.mark.slow), "bubblewrap"])
async def harness(base_dir: Path, request: pytest.FixtureRequest) -> AsyncIterator[EngineHarness]:
    """An open local engine, with and without the sandbox."""
    async with EngineHarness(base_dir, sandbox=request.param) as one:
        yield one


@pytest.fixture
async def unsandboxed(base_dir: Path) -> AsyncIterator[EngineHarness]:
    async with EngineHarness(base_dir, sandbox="none") as one:
        yield one


@pytest.fixture
async def sandboxed(base_dir: Path) -> AsyncIterator[EngineHarness]:
    async with EngineHarness(base_dir, sandbox="bubblewrap") as one:
        yield one


@pytest.fixture(params=["bubblewrap", IN_IMAGE])
async def confined(base_dir: Path, request: pytest.FixtureRequest) -> AsyncIterator[EngineHarness]:
    """In the sandbox, with and without an image."""
    async with EngineHarness(base_dir, **kinds(request.param)) as one:
        yield one
