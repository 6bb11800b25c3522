"""Jobs of all three APIs on a real Ray with two nodes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dialects.modelarts.driving import Cloud as Huawei
from tests.dialects.vertex.driving import Cloud as Google
from tests.engines.conformance import GREET_PEERS
from tests.engines.remote.storage_clients import Where, check_clients, site_packages
from tests.ray.daemons import Ray
from tests.running import KEY, Service, python_path, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

CLUSTER, SPREAD, RACK = "ap-shanghai", "ap-guangzhou", "ap-chengdu"
CONFIG = """
[clusters.ap-shanghai]
engine = "ray"
address = "{ray.address}"
python = "{ray.python}"

[clusters.ap-guangzhou]
engine = "ray"
address = "{ray.address}"
python = "{ray.python}"
spread = true

[clusters.ap-chengdu]
engine = "ray"
address = "{ray.address}"
python = "{ray.python}"
resources = {{rack = 2}}

[pools.pool-ray]
cluster = "ap-guangzhou"

[images]
"python:3.11" = "anything"
"tests/anything:1" = "anything"
"""


@pytest.fixture(scope="module")
def service(ray: Ray) -> Iterator[Service]:
    with running(config=CONFIG.format(ray=ray)) as one:
        yield one.start()


def submit(service: Service, name: str, *argv: str, cluster: str = CLUSTER, **fields: Any) -> Any:
    return service.create(name, *argv, Cluster=cluster, **fields)


def ended(service: Service, name: str) -> Any:
    return service.wait(name, timeout=120)


def lines(service: Service, name: str, cluster: str = CLUSTER) -> list[str]:
    return [line.Log for line in service.logs(name, cluster)]


def test_a_gang_finds_its_members_on_nodes_of_their_own(service: Service, ray: Ray):
    roles = {"ScaleTier": "CUSTOM", "MasterType": "3U1G0P", "WorkerType": "3U1G0P", "WorkerCount": 1}
    submit(service, "gang", "python", "-c", GREET_PEERS, cluster=SPREAD, **roles)
    job = ended(service, "gang")
    assert job["state"] == "succeeded", lines(service, "gang", SPREAD)
    assert {replica["address"] for replica in job["replicas"]} == set(ray.workers)
    greeted = sorted(line for line in lines(service, "gang", SPREAD) if "greeted" in line)
    assert greeted == ["chief 0 was greeted by worker 0", "worker 0 was greeted by chief 0"]
    ray.wait(lambda: not ray.groups())


def test_custom_resources_and_gpus_choose_the_node(service: Service, ray: Ray):
    show = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'), [n for n in os.environ if 'RAY' in n])"
    sizes = {"ScaleTier": "CUSTOM", "MasterType": "1U1G2P"}
    submit(service, "gpus", "python", "-c", show, cluster=RACK, **sizes)
    job = ended(service, "gpus")
    assert job["replicas"][0]["address"] == ray.workers[1], job
    assert lines(service, "gpus", RACK) == ["0,1 []"]


def test_inputs_and_outputs_of_modelarts(service: Service):
    service.put("obs://ray-data/in/a.txt", "some data")
    huawei = Huawei(service)
    channels = {
        "inputs": [{"name": "data", "remote": {"obs": {"obs_url": "/ray-data/in/"}}}],
        "outputs": [{"name": "model", "remote": {"obs": {"obs_url": "/ray-data/out/"}}}],
    }
    made = huawei.create(
        "data-ray",
        "cat $data/a.txt; tr a-z A-Z < $data/a.txt > $model/b.txt",
        algorithm=channels,
        spec={"resource": {"pool_id": "pool-ray", "node_count": 1}},
    ).metadata.id
    job = ended(service, "data-ray")
    assert job["state"] == "succeeded", (job, huawei.log(made))
    assert "some data" in huawei.log(made)
    assert (service.data / "buckets/ray-data/out/b.txt").read_text() == "SOME DATA"


def test_vertex_cancel(service: Service):
    google = Google(service, "default")
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": 1,
        "containerSpec": {"imageUri": "python:3.11", "command": ["sh", "-c", "echo up; sleep 600"]},
    }
    spec = {"workerPoolSpecs": [pool], "persistentResourceId": CLUSTER}
    made = google.send("POST", "customJobs", {"displayName": "long", "jobSpec": spec}).body
    job = made["name"].rpartition("/")[2]
    service.wait(job, "started", 120)
    google.send("POST", f"/v1/{made['name']}:cancel", {})
    ended(service, job)
    assert google.get(made["name"])["state"] == "JOB_STATE_CANCELLED"


def test_a_job_that_waits_says_why_and_can_be_stopped(service: Service, ray: Ray):
    submit(service, "large", "true", ScaleTier="CUSTOM", MasterType="64U1G0P")
    ray.wait(lambda: "no node has 64 CPU" in json.dumps(service.explain("large")), "it says nothing")
    service.delete("large", CLUSTER)
    ray.wait(lambda: not ray.groups())


def test_nodes_show_what_runs_there(service: Service, ray: Ray):
    submit(service, "placed", "sh", "-c", "echo up; sleep 600", ScaleTier="CUSTOM", MasterType="2U1G0P")
    service.wait("placed", "started", 120)
    address = service.native("/jobs/placed")["replicas"][0]["address"]
    clusters = service.native("/clusters")["clusters"]
    nodes = {one["name"]: one for one in next(c["nodes"] for c in clusters if c["name"] == CLUSTER)}
    assert set(ray.workers) < set(nodes)
    assert [job["name"] for job in nodes[address]["jobs"]] == ["placed"]
    assert nodes[address]["used"]["cpu"] == 2
    assert nodes[ray.workers[1]]["capacity"]["gpus"] == 2
    service.delete("placed", CLUSTER)


def test_a_memory_limit_is_enforced_and_named(service: Service):
    program = "x = bytearray(3 << 30); x[::4096] = b'x' * len(x[::4096]); print(len(x))"
    submit(service, "greedy", "python", "-c", program, ScaleTier="CUSTOM", MasterType="1U1G0P")
    job = ended(service, "greedy")
    assert job["reason"] == "out of memory", job
    assert "it used more memory than the 1024 MiB that it had asked for" in json.dumps(job)


def check(service: Service, cluster: str) -> tuple[int, list[dict[str, Any]]]:
    command = [sys.executable, "-m", "turnout.cli.main", "cluster", "check", cluster, "--output=json"]
    variables = {
        "PYTHONPATH": python_path(),
        "TURNOUT_ENDPOINT": service.endpoint,
        "TURNOUT_KEY": f"{KEY.id}:{KEY.secret}",
    }
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, timeout=180)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_check_of_the_cluster(service: Service, ray: Ray):
    code, results = check(service, RACK)
    assert (code, [result["ok"] for result in results]) == (0, [True] * 4), results
    assert results[0]["detail"].startswith("Ray 2.")
    assert results[1]["detail"].startswith("3 with 8 CPU, 2 GPU, ")
    assert results[2]["detail"].endswith(f" on {ray.workers[1]}")
    assert results[3]["what"] == f"a node reaches {service.endpoint}"


def test_a_program_reaches_the_buckets_of_its_project(service: Service, ray: Ray):
    check_clients(Where(service, "pool-ray", site_packages(), (ray.directory,)))
