"""The two examples of the documentation, unchanged, through Huawei's own client."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dialects.modelarts.conftest import CONFIG
from tests.dialects.modelarts.driving import Cloud, get, put, refused, send
from tests.dialects.modelarts.examples import ALGORITHM, ALGORITHM_ID, ONE, TWO
from tests.running import Service, reachable_directory, running
from turnout.dialects.modelarts import decode
from turnout.dialects.modelarts.algorithms.document import stored_algorithm
from turnout.job import Asset
from turnout.paths import Paths
from turnout.store import Store

MOUNT = """#!/bin/sh
echo "$@" > {place}/mounted
for last; do :; done
chmod 777 "$last"
"""
"""Stands for the kernel's NFS client, for want of a server: notes how it was called."""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """One whose project has the algorithm that the first example names by its id, and the second one's image."""
    with reachable_directory() as place:
        for name in ("bin", "image"):
            (place / name).mkdir()
        (place / "bin" / "mount").write_text(MOUNT.format(place=place))
        (place / "bin" / "mount").chmod(0o755)
        (place / "image" / "run_ddp.sh").write_text(
            "echo it runs; echo $NCCL_DEBUG $MA_NUM_GPUS > /home/ma-user/nfs/written\n"
        )
        runtime = f'[runtimes.fastseq]\nmounts = {{ "/home/ma-user/ddp_demo" = "{place}/image" }}\n'
        with running(CONFIG + runtime, {"PATH": f"{place}/bin:{os.environ['PATH']}"}) as one:
            one.data.mkdir()
            asyncio.run(store_algorithm(one))
            one.mounts = place / "mounted"  # type: ignore[attr-defined]
            yield one.start()


@pytest.fixture(scope="module")
def cloud(service: Service) -> Cloud:
    put(service, "obs://xxxxxx-rse/test/moxingtest-code/test_obs_gpu.py", SHOW)
    return Cloud(service)


SHOW = "import os, sys; print(sys.argv, os.environ['MA_NUM_GPUS'])"


async def store_algorithm(service: Service) -> None:
    document = decode.decode_algorithm(json.dumps(ALGORITHM).encode())
    stored = stored_algorithm(document)
    store = Store.open("", Paths(service.data).database)
    await store.assets.create(
        Asset("default", "algorithm", ALGORITHM_ID, "0", "ttt-obs-gpu", 1, 1, json.dumps(stored).encode())
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
    said = cloud.log(made.metadata.id)
    assert "--input_dir=obs://xxxxxx-rse/test/moxingtest-dir/" in said
    assert "'--large_file_method=1'] 1" in said


def test_the_second_runs_with_what_the_server_exports(service: Service, cloud: Cloud):
    """Its image has /home/ma-user/ddp_demo in it, which here is a directory that its runtime shows there."""
    made = cloud("create_training_job", body=TWO)
    assert made.spec.resource.pool_id == "poolfaf38d76"
    assert made.spec.volumes[0].nfs.nfs_server_path == "192.168.0.82:/"
    assert made.algorithm.engine.image_url == "xxxxxxxx/fastseq:1.2"
    assert service.wait("TestModelArtsJob2")["state"] == "succeeded", cloud.log(made.metadata.id)
    called = service.mounts.read_text().split()  # type: ignore[attr-defined]
    assert called[:-1] == ["-t", "nfs", "-o", "rw,nosuid,nodev,soft,timeo=100", "--", "192.168.0.82:/"]
    assert Path(called[-1], "written").read_text() == "INFO 1\n"
    log = f"modelarts-job-{made.metadata.id}-worker-0.log"
    assert "it runs" in get(service, f"obs://xxxxxx-training-test/limou/ddp-demo-log/{log}")


def test_a_wrong_algorithm(service: Service, cloud: Cloud):
    other = json.loads(json.dumps(ONE))
    other["metadata"]["name"] = "wrong"
    other["algorithm"]["id"] = "3f5d6706-7b67-408d-8ba0-ec08048c45ee"
    with refused("ModelArts.2755", match="algorithm not found."):
        cloud("create_training_job", body=other)
    assert send(service, "POST", "/v2/default/training-jobs", json.dumps(other)).json() == {
        "error_msg": "algorithm not found.",
        "error_code": "ModelArts.2755",
        "error_solution": "Check whether the training project information in the request is valid.",
    }


def test_an_answer_posted_back_is_an_equal_job(cloud: Cloud):
    name = {"key": "name", "operator": "like", "value": ["TestModelArtsJob"]}
    listed = cloud("list_training_jobs", body={"filters": [name]})
    shown = json.loads(cloud.details(listed.items[0].metadata.id).raw_content)
    shown["metadata"]["name"] = "again"
    made = json.loads(cloud("create_training_job", body=shown).raw_content)
    for part in ("kind", "algorithm", "spec"):
        assert made[part] == shown[part]
