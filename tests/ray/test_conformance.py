"""The remote engine on a real Ray, by the suite that every engine passes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engines.conformance import EngineConformance
from tests.engines.remote.harness import RemoteHarness
from tests.ray.daemons import Ray
from turnout.engines.ray import RayCluster, RaySettings
from turnout.engines.remote import RemoteEngine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


class RayHarness(RemoteHarness):
    def __init__(self, base_dir: Path, ray: Ray) -> None:
        super().__init__(base_dir)
        self._ray_settings = RaySettings(ray.environment, ray.address, str(ray.python))

    def make_engine(self) -> RemoteEngine:
        # A cluster is closed with its service, and a new service makes a new one.
        self.ray_cluster = RayCluster("ray", self._ray_settings)
        return self.engine_of(self.ray_cluster)

    async def stop_all(self) -> None:
        """Runners wait for orders to leave, which nobody gives."""
        await super().stop_all()
        async for jobs in self.ray_cluster.watch():
            for job in jobs:
                await self.ray_cluster.cancel(job.handle)
            break


class TestRay(EngineConformance):
    @pytest.fixture
    async def harness(self, tmp_path: Path, ray: Ray) -> AsyncIterator[RayHarness]:
        async with RayHarness(tmp_path, ray) as one:
            yield one
