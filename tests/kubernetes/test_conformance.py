"""What every engine must do, with real pods."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engines.conformance import EngineConformance
from tests.kubernetes.daemons import Kubernetes
from tests.kubernetes.harness import KubernetesHarness

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240, func_only=True)]


class TestKubernetes(EngineConformance):
    @pytest.fixture
    async def harness(self, kubernetes: Kubernetes, tmp_path: Path) -> AsyncIterator[KubernetesHarness]:
        async with KubernetesHarness(kubernetes, tmp_path) as one:
            yield one
