"""What the programs of Vertex and ModelArts find in their environment on several nodes, and a restart in place."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dialects.modelarts.driving import Cloud as Huawei
from tests.dialects.vertex.driving import Cloud as Google
from tests.engines.conformance import GREET_PEERS
from tests.running import Service, running
from tests.slurm.daemons import CPUS, Slurm
from tests.slurm.test_service import CLUSTER, CONFIG, ended

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SHOW = """
import json, os, socket
print("env", json.dumps(dict(os.environ)), flush=True)
"""
RESOLVE = """
hosts = os.environ["VC_WORKER_HOSTS"].split(",")
print("hosts", *[socket.gethostbyname(host) for host in hosts], flush=True)
"""
KILLED_ONCE = """
import signal
if not os.path.exists("/tmp/mark"):
    open("/tmp/mark", "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def service(slurm: Slurm) -> Iterator[Service]:
    with running(env={"SLURM_CONF": slurm.environment["SLURM_CONF"]}) as one:
        one.config.write_text(f'{CONFIG}\n[runner]\nurl = "http://{slurm.address}:{one.port}"\n')
        yield one.start("--host", "0.0.0.0")


def test_vertex_across_nodes_with_a_replica_that_restarts_in_place(service: Service, slurm: Slurm):
    google = Google(service, "default")
    job = google.create(
        pool(SHOW + GREET_PEERS),
        pool(SHOW + KILLED_ONCE + GREET_PEERS, 3),
        spec={"persistentResourceId": CLUSTER},
    )
    view = ended(service, job["name"].rpartition("/")[2])
    said = texts(google, job)
    assert google.get(job["name"])["state"] == "JOB_STATE_SUCCEEDED", said
    assert [text for text in said if "greeted" in text and "workerpool0" in text], said
    seen = environments(said)
    assert len(seen) == 1 + 3 * 2, "each worker was started twice"
    addresses = {replica["name"]: replica["address"] for replica in view["replicas"]}
    assert set(addresses.values()) == {slurm.near, slurm.far}
    for variables in seen:
        spec, config = json.loads(variables["CLUSTER_SPEC"]), json.loads(variables["TF_CONFIG"])
        assert {pool: len(members) for pool, members in spec["cluster"].items()} == {
            "workerpool0": 1,
            "workerpool1": 3,
        }
        assert config["task"]["index"] == spec["task"]["index"]
        assert variables["MASTER_ADDR"] == spec["cluster"]["workerpool0"][0].partition(":")[0]
        assert variables["CLOUD_ML_PROJECT_ID"]
        assert "SLURM_PROCID" not in variables


def test_modelarts_across_nodes(service: Service, slurm: Slurm):
    huawei = Huawei(service)
    nodes = {
        "pool_id": "pool-slurm",
        "node_count": 4,
        "main_container_customized_flavor": {"cpu_core_num": CPUS, "mem_size": 1, "accelerator_num": 0},
    }
    command = f"python -c '{SHOW}{RESOLVE}'"
    made = huawei.create("nodes", command, spec={"resource": nodes}).metadata.id
    job = ended(service, "nodes")
    said = [huawei.log(made, f"worker-{index}") for index in range(4)]
    assert job["state"] == "succeeded", said
    seen = [environments(text.splitlines())[0] for text in said]
    addresses = [variables["MA_CURRENT_IP"] for variables in seen]
    assert set(addresses) == {slurm.near, slurm.far}
    assert all(f"hosts {' '.join(addresses)}" in text for text in said), said
    for index, variables in enumerate(seen):
        assert (variables["VC_TASK_INDEX"], variables["VC_WORKER_NUM"]) == (str(index), "4")
        assert variables["MA_NUM_HOSTS"] == "4"
        assert variables["MA_CURRENT_INSTANCE_NAME"] in variables["VC_WORKER_HOSTS"].split(",")[index]


def pool(program: str, replicas: int = 1) -> dict[str, Any]:
    """Each replica takes a whole node."""
    container = {"imageUri": "python:3.11", "command": ["python", "-c", program]}
    return {
        "machineSpec": {"machineType": f"n1-standard-{CPUS}"},
        "replicaCount": replicas,
        "containerSpec": container,
    }


def environments(lines: list[str]) -> list[dict[str, str]]:
    return [json.loads(line.removeprefix("env ")) for line in lines if line.startswith("env ")]


def texts(google: Google, job: Any) -> list[str]:
    found = google.entries(job).get("entries", [])
    return [one.get("textPayload") or json.dumps(one["jsonPayload"]) for one in found]
