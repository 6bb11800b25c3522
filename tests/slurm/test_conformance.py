"""The remote engine on a real Slurm, by the suite that every engine passes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import make_certificate
from tests.engines.conformance import EngineConformance
from tests.engines.remote.harness import RemoteHarness
from tests.slurm.daemons import Slurm
from turnout.engines.remote import RemoteEngine
from turnout.engines.slurm import SlurmCluster, SlurmSettings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


class SlurmHarness(RemoteHarness):
    def __init__(self, base_dir: Path, slurm: Slurm, scratch: str = "", **settings: Any) -> None:
        """`scratch`: the TMPDIR of nodes, if it is not that of all tests."""
        super().__init__(base_dir, **settings)
        self.host = slurm.address
        variables = {"TMPDIR": scratch} if scratch else {}
        self._settings_of_slurm = SlurmSettings(environment={**slurm.environment, **variables})

    def make_engine(self) -> RemoteEngine:
        # A cluster is closed with its service, and a new service makes a new one.
        return self.engine_of(SlurmCluster("lab", self._settings_of_slurm, self.paths.clusters))


class TestSlurm(EngineConformance):
    @pytest.fixture
    async def harness(self, tmp_path: Path, slurm: Slurm) -> AsyncIterator[SlurmHarness]:
        async with SlurmHarness(tmp_path, slurm) as one:
            yield one
        slurm.cancel_all()  # runners wait for orders to leave, which nobody gives


async def test_nodes_fetch_the_runner_and_call_over_tls(tmp_path: Path, place: Path, slurm: Slurm):
    certificate = make_certificate(tmp_path)
    (place / "no-runner-yet").mkdir()
    async with SlurmHarness(
        tmp_path, slurm, str(place / "no-runner-yet"), certificate=certificate
    ) as harness:
        attempt = await harness.python("print('encrypted')")
        assert (await harness.ended(attempt)).code == 0
        assert harness.output(attempt) == "encrypted\n"
    slurm.cancel_all()
