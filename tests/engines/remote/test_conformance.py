from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engines.conformance import EngineConformance
from tests.engines.remote.harness import RemoteHarness


class TestFakeCluster(EngineConformance):
    @pytest.fixture
    async def harness(self, tmp_path: Path) -> AsyncIterator[RemoteHarness]:
        async with RemoteHarness(tmp_path) as one:
            yield one
