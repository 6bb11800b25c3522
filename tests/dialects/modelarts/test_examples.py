"""The two examples of the documentation, as they stand, through Huawei's own client."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from tests.dialects.modelarts.conftest import CONFIG
from tests.dialects.modelarts.driving import Cloud, put, refused
from tests.dialects.modelarts.examples import ALGORITHM, ALGORITHM_ID, ONE, TWO
from tests.running import Service, running
from turnout import config
from turnout.dialects.modelarts import decode, translate
from turnout.job import Asset
from turnout.paths import Paths
from turnout.store import Store


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """One whose project has the algorithm that the first example names by its id."""
    with running(CONFIG) as one:
        one.data.mkdir()
        asyncio.run(keep_algorithm(one))
        yield one.start()


@pytest.fixture(scope="module")
def cloud(service: Service) -> Cloud:
    put(service, "obs://xxxxxx-rse/test/moxingtest-code/test_obs_gpu.py", "import sys; print(sys.argv)")
    return Cloud(service)


async def keep_algorithm(service: Service) -> None:
    document = decode.decode_algorithm(json.dumps(ALGORITHM).encode())
    kept = translate.keep_algorithm(document, config.Settings())
    store = Store.open("", Paths(service.data).database)
    await store.assets.create(
        Asset("default", "algorithm", ALGORITHM_ID, "0", "ttt-obs-gpu", 1, 1, json.dumps(kept).encode())
    )
    await store.close()


def test_the_first_runs(service: Service, cloud: Cloud):
    made = cloud("create_training_job", body=ONE)
    assert (made.status.phase, made.status.tasks, made.metadata.workspace_id) == (
        "Creating",
        ["worker-0"],
        "0",
    )
    assert made.algorithm.name == "ttt-obs-gpu"
    assert [one.value for one in made.algorithm.parameters][2] == "1"
    assert made.spec.resource.flavor_detail.flavor_info.gpu.unit_num == 1
    assert made.spec.log_export_path.obs_url is None
    assert service.wait("TestModelArtsJob")["state"] == "succeeded"
    where = {"training_job_id": made.metadata.id, "task_id": "worker-0"}
    said = cloud("show_training_job_logs_preview", **where).content
    assert "--input_dir=obs://xxxxxx-rse/test/moxingtest-dir/" in said
    assert "--large_file_method=1" in said


def test_the_second_is_taken_as_it_is(service: Service, cloud: Cloud):
    """It waits for the only card, and never comes to mount from a server that is not there."""
    card = {"resource": {"flavor_id": "modelarts.p3.large.public", "node_count": 1}}
    holder = cloud.create("holds-the-card", "sleep 600", spec=card)
    service.wait("holds-the-card", "started")
    made = cloud("create_training_job", body=TWO)
    assert made.spec.resource.pool_id == "poolfaf38d76"
    assert made.spec.volumes[0].nfs.nfs_server_path == "192.168.0.82:/"
    assert made.algorithm.engine.image_url == "xxxxxxxx/fastseq:1.2"
    assert cloud.details(made.metadata.id).status.phase == "Pending"
    for one in (made, holder):
        cloud("delete_training_job", training_job_id=one.metadata.id)


def test_a_wrong_algorithm(cloud: Cloud):
    other = json.loads(json.dumps(ONE))
    other["metadata"]["name"] = "wrong"
    other["algorithm"]["id"] = "3f5d6706-7b67-408d-8ba0-ec08048c45ee"
    with refused("ModelArts.2755", match="algorithm not found."):
        cloud("create_training_job", body=other)


def test_an_answer_posted_back_is_an_equal_job(cloud: Cloud):
    name = {"key": "name", "operator": "like", "value": ["TestModelArtsJob"]}
    listed = cloud("list_training_jobs", body={"filters": [name]})
    shown = json.loads(cloud.details(listed.items[0].metadata.id).raw_content)
    shown["metadata"]["name"] = "again"
    made = json.loads(cloud("create_training_job", body=shown).raw_content)
    for part in ("kind", "algorithm", "spec"):
        assert made[part] == shown[part]
