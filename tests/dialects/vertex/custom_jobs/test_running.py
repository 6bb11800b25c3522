"""Translated jobs on a real engine, with the sandbox and without: packages, buckets, exit codes."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.dialects.vertex.custom_jobs.test_package_command import wheel
from tests.dialects.vertex.jobs import MAPPED, Document, container, job, package, translated
from tests.engines.local import harness
from tests.engines.local.harness import EngineHarness, accounts_in, owners
from tests.running import reachable_directory
from turnout.job import Attempt, Ended, Launch, ReplicaName
from turnout.storage import Storage

LEAD = ReplicaName("workerpool0", 0)
TASK = """
import os, sys
model = os.environ["AIP_MODEL_DIR"].replace("gs://", os.environ["TURNOUT_ROOT"] + "/gcs/")
os.makedirs(model)
open(model + "model.txt", "w").write(" ".join(sys.argv[1:]))
print("trained in", os.environ["CLOUD_ML_REGION"])
sys.exit(3)
"""


class Site(EngineHarness):
    """A harness with embedded buckets."""

    def __init__(self, place: Path, sandbox: str) -> None:
        users = accounts_in(place)
        self.buckets = Storage(place / "data/buckets", [], place / "data", owners(users))
        super().__init__(place, sandbox=sandbox, storage=self.buckets, accounts=users)

    async def go(self, document: Document) -> Ended:
        launch = self.launched(document)
        await self.engine.start(launch)
        return await self.ended(launch.attempt, LEAD)

    def launched(self, document: Document) -> Launch:
        new = translated(document, MAPPED)
        self._jobs += 1
        return Launch(Attempt(self._jobs, 1), new.project, new.dialect, new.name, new.spec)

    async def put(self, bucket: str, key: str, data: bytes) -> None:
        def write() -> None:
            writer = self.buckets.embedded.writer(bucket, key, "p1")
            writer.write(data)
            writer.commit()

        await asyncio.to_thread(write)


@pytest.fixture
def place() -> Iterator[Path]:
    with reachable_directory() as directory:
        yield directory


@pytest.fixture(params=["none", "bubblewrap"])
async def site(
    place: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    # Pip takes its time on a busy machine.
    monkeypatch.setattr(harness, "TIMEOUT", 150)
    async with Site(place, request.param) as one:
        yield one


@pytest.mark.timeout(200)
async def test_a_package_from_a_bucket_trains_into_another(site: Site, tmp_path: Path):
    built = tmp_path / wheel(tmp_path / "0", "trainer", {"trainer/__init__.py": "", "trainer/task.py": TASK})
    await site.put("stage", f"code/{built.name}", built.read_bytes())
    document = job(
        package(
            packageUris=[f"gs://stage/code/{built.name}"],
            args=["--lr", "0.1 $(x)"],
            env=[{"name": "PIP_NO_INDEX", "value": "1"}],
        ),
        spec={"baseOutputDirectory": {"outputUriPrefix": "gs://out/run"}},
    )
    end = await site.go(document)
    said = site.output(end.attempt, LEAD)
    assert end.code == 3, said + site.output(end.attempt, LEAD, 1)
    assert said.splitlines()[-1] == "trained in us-central1"
    written = site.base_dir / "data/buckets/out/run/model/model.txt"
    assert await asyncio.to_thread(written.read_text) == "--lr 0.1 $(x)"


@pytest.mark.timeout(200)
async def test_a_replica_that_restarts_in_place_has_its_packages(site: Site, tmp_path: Path):
    built = tmp_path / wheel(tmp_path / "0", "trainer", {"task.py": "import os; os.kill(os.getpid(), 9)"})
    await site.put("stage", built.name, built.read_bytes())
    offline = [{"name": "PIP_NO_INDEX", "value": "1"}]
    pool = package(packageUris=[f"gs://stage/{built.name}"], pythonModule="task", env=offline)
    launch = site.launched(job(pool))
    await site.engine.start(launch)
    assert (await site.ended(launch.attempt, LEAD)).signal == 9
    await site.engine.restart(launch, LEAD, 1)
    await site.wait(lambda report: isinstance(report, Ended) and report.restarts == 1)
    assert site.output(launch.attempt, LEAD).count("Successfully installed trainer") == 1


async def test_a_container_finds_its_bucket(site: Site):
    await site.put("in-1", "data/x.txt", b"hello\n")
    end = await site.go(job(container(command=["cat"], args=["/gcs/in-1/data/x.txt"])))
    assert (end.code, site.output(end.attempt, LEAD)) == (0, "hello\n")
