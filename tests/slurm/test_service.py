"""Jobs of all three APIs on a real Slurm of four nodes, one of which has a network address of its own."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dialects.modelarts.driving import Cloud as Huawei
from tests.dialects.vertex.driving import Cloud as Google
from tests.engines.conformance import GREET_PEERS
from tests.engines.remote.storage_clients import Where, check_clients, site_packages
from tests.running import Service, running
from tests.slurm.daemons import Slurm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

CLUSTER = "ap-shanghai"
CONFIG = f"""
[clusters.{CLUSTER}]
engine = "slurm"
python = "/usr/bin/python3"

[pools.pool-slurm]
cluster = "{CLUSTER}"

[images]
"tests/anything:1" = "anything"
"python:3.11" = "anything"

[limits]
sample_seconds = 1
"""


@pytest.fixture(scope="module")
def service(slurm: Slurm) -> Iterator[Service]:
    with running(env={"SLURM_CONF": slurm.environment["SLURM_CONF"]}) as one:
        one.config.write_text(f'{CONFIG}\n[runner]\nurl = "http://{slurm.address}:{one.port}"\n')
        yield one.start("--host", "0.0.0.0")


def submit(service: Service, name: str, *argv: str, **fields: Any) -> Any:
    return service.create(name, *argv, Cluster=CLUSTER, **fields)


def ended(service: Service, name: str) -> Any:
    return service.wait(name, timeout=120)


def lines(service: Service, name: str) -> list[str]:
    return [line.Log for line in service.logs(name, CLUSTER)]


def test_a_job_of_tia(service: Service):
    submit(service, "hello", "sh", "-c", "echo hello from $SLURM_JOB_ID; exit 3")
    job = ended(service, "hello")
    assert (job["state"], job["replicas"][0]["exit_code"]) == ("failed", 3)
    [line] = lines(service, "hello")
    assert line.startswith("hello from ")
    assert line.split()[-1].isdecimal()


def test_a_gang_finds_its_members_across_nodes(service: Service, slurm: Slurm):
    # Each needs a node of its own, so one of them runs on the node with another address.
    types = dict.fromkeys(("MasterType", "WorkerType", "ParameterServerType"), "3U1G0P")
    roles = {"ScaleTier": "CUSTOM", "WorkerCount": 2, "ParameterServerCount": 1} | types
    program = f"import os; print(os.environ['TF_CONFIG'], flush=True)\n{GREET_PEERS}"
    submit(service, "gang", "python", "-c", program, **roles)
    job = ended(service, "gang")
    assert job["state"] == "succeeded", lines(service, "gang")
    greeted = [line for line in lines(service, "gang") if "greeted" in line]
    assert len(greeted) == 4
    assert min(greeted).startswith("chief 0 was greeted by ps 0, worker 0, worker 1")
    said = "\n".join(lines(service, "gang"))
    assert {slurm.near, slurm.far} <= set(re.findall(r"10\.77\.\d+\.\d+", said)), said


def test_nodes_show_what_runs_there(service: Service, slurm: Slurm):
    roles = {"ScaleTier": "CUSTOM", "MasterType": "3U1G0P", "WorkerType": "3U1G0P", "WorkerCount": 1}
    submit(service, "placed", "sh", "-c", "echo up; sleep 600", **roles)
    slurm.wait(lambda: all(replica["node"] for replica in service.native("/jobs/placed")["replicas"]))
    placed = {replica["node"] for replica in service.native("/jobs/placed")["replicas"]}
    assert len(placed) == 2
    listed = next(one for one in service.native("/clusters")["clusters"] if one["name"] == CLUSTER)
    nodes = {node["name"]: node for node in listed["nodes"]}
    assert len(nodes) == 4
    for name, node in nodes.items():
        assert [job["name"] for job in node["jobs"]] == (["placed"] if name in placed else [])
        assert node["used"]["cpu"] == (3 if name in placed else 0)
    assert sum(node["capacity"]["gpus"] for node in nodes.values()) == 4
    service.delete("placed", CLUSTER)


def test_the_variables_of_the_job_but_not_of_the_step(service: Service):
    program = "import json, os; print(json.dumps([name for name in os.environ if name.startswith('SLURM')]))"
    submit(service, "variables", "python", "-c", program)
    ended(service, "variables")
    found = set(json.loads(lines(service, "variables")[0]))
    assert "SLURM_JOB_ID" in found
    assert not {name for name in found if "STEP" in name or name in ("SLURM_PROCID", "SLURM_LOCALID")}


def test_inputs_and_outputs_of_modelarts(service: Service):
    service.put("obs://slurm-data/in/a.txt", "some data")
    huawei = Huawei(service)
    channels = {
        "inputs": [{"name": "data", "remote": {"obs": {"obs_url": "/slurm-data/in/"}}}],
        "outputs": [{"name": "model", "remote": {"obs": {"obs_url": "/slurm-data/out/"}}}],
    }
    spec = {"resource": {"pool_id": "pool-slurm", "node_count": 1}}
    made = huawei.create(
        "data-slurm",
        "cat $data/a.txt; tr a-z A-Z < $data/a.txt > $model/b.txt",
        algorithm=channels,
        spec=spec,
    ).metadata.id
    job = ended(service, "data-slurm")
    assert job["state"] == "succeeded", (job, huawei.log(made))
    assert "some data" in huawei.log(made)
    assert (service.data / "buckets/slurm-data/out/b.txt").read_text() == "SOME DATA"


def test_vertex_cancel_and_timeout(service: Service):
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
    shown = google.get(made["name"])
    assert shown["state"] == "JOB_STATE_CANCELLED", shown
    limited = spec | {"scheduling": {"timeout": "2s"}}
    made = google.send("POST", "customJobs", {"displayName": "limited", "jobSpec": limited}).body
    ended(service, made["name"].rpartition("/")[2])
    shown = google.get(made["name"])
    assert (shown["state"], shown["error"]["code"]) == ("JOB_STATE_FAILED", 4)


def test_a_killed_service_finds_everything_again(service: Service):
    program = (
        "import time\nfor i in range(100):\n    print(i, flush=True); time.sleep(0.1)\nraise SystemExit(7)"
    )
    submit(service, "survivor", "python", "-c", program)
    service.wait("survivor", "started", 120)
    service.kill()
    time.sleep(2)
    service.start("--host", "0.0.0.0")
    job = ended(service, "survivor")
    assert job["replicas"][0]["exit_code"] == 7
    assert lines(service, "survivor") == [str(i) for i in range(100)]


def test_scancel_by_hand_is_a_stop_from_outside(service: Service, slurm: Slurm):
    submit(service, "cancelled", "sh", "-c", "echo up; sleep 600")
    service.wait("cancelled", "started", 120)
    name = f"turnout-{service.native('/jobs/cancelled')['id']}.1"
    slurm.run("scancel", f"--name={name}")
    job = ended(service, "cancelled")
    assert job["state"] == "stopped"
    assert "cancel" in job["message"].lower(), job["message"]


def test_a_job_that_waits_says_why(service: Service, slurm: Slurm):
    others = slurm.run(
        "sbatch",
        "--parsable",
        "--nodes=4",
        "--exclusive",
        "--output=/dev/null",
        stdin="#!/bin/sh\nsleep 600\n",
    )
    submit(service, "next", "echo", "ran", ScaleTier="CUSTOM", MasterType="4U1G0P")
    slurm.wait(lambda: "turnout-" in slurm.run("squeue", "--noheader", "--format=%j"))
    submit(service, "behind", "echo", "ran", ScaleTier="CUSTOM", MasterType="4U1G0P")
    reasons = {
        "next": "Slurm: waiting for resources, 0 jobs before it in partition main",
        "behind": "Slurm: waiting for its turn, 1 job before it in partition main",
    }
    for name, why in reasons.items():
        slurm.wait(lambda name=name, why=why: service.explain(name)["why"] == [why])
    slurm.run("scancel", others.strip())
    for name in reasons:
        assert ended(service, name)["state"] == "succeeded"


def test_a_memory_kill_is_named(service: Service):
    program = "x = bytearray(1 << 30); x[::4096] = b'x' * len(x[::4096]); print(len(x))"
    submit(service, "greedy", "python", "-c", program, ScaleTier="CUSTOM", MasterType="1U1G0P")
    job = ended(service, "greedy")
    assert job["reason"] == "out of memory", job


def test_what_a_program_on_a_node_uses(service: Service):
    huawei = Huawei(service)
    made = huawei.create(
        "busy-slurm",
        "timeout 5 sh -c 'while :; do :; done'; true",
        spec={"resource": {"pool_id": "pool-slurm", "node_count": 1}},
    ).metadata.id
    assert ended(service, "busy-slurm")["state"] == "succeeded"
    answer = huawei("show_training_job_metrics", training_job_id=made, task_id="worker-0")
    used = {one.metric: one.value for one in answer.metrics}
    assert 1 < used["cpuUsage"][0] <= 100
    assert 0 < used["memUsage"][0] < 100
    assert used["npuUtil"] == used["npuMemUsage"] == [-1]


def test_a_program_reaches_the_buckets_of_its_project(service: Service, slurm: Slurm):
    check_clients(Where(service, "pool-slurm", site_packages(), (slurm.directory,)))
