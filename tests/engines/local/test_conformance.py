from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engines.conformance import EngineConformance
from tests.engines.local.harness import EngineHarness


class TestWithSandbox(EngineConformance):
    @pytest.fixture
    async def harness(self, base_dir: Path) -> AsyncIterator[EngineHarness]:
        async with EngineHarness(base_dir, sandbox="bubblewrap") as one:
            yield one


@pytest.mark.slow
class TestWithoutSandbox(EngineConformance):
    @pytest.fixture
    async def harness(self, base_dir: Path) -> AsyncIterator[EngineHarness]:
        async with EngineHarness(base_dir, sandbox="none") as one:
            yield one
