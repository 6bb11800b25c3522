"""Jobs of all three APIs as real pods, by a service that has the rights of `turnout cluster manifest` and no others."""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.dialects.modelarts.driving import Cloud as Huawei
from tests.dialects.vertex.driving import Cloud as Google
from tests.engines.conformance import GREET_PEERS
from tests.kubernetes.daemons import NAMESPACE, Kubernetes, token_of
from tests.kubernetes.dns import ClusterDns
from tests.kubernetes.harness import left
from tests.kubernetes.images import PYTHON
from tests.running import KEY, Service, python_path, running
from tests.web.visitor import open_page

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240, func_only=True)]

CLUSTER = "cls-rgaisoe4"
CONFIG = """
[clusters.{cluster}]
engine = "kubernetes"
kubeconfig = "{kubeconfig}"
image = "{image}"
gang_seconds = 20
images = {{ "tests/anything:1" = "{image}" }}

[clusters.nowhere]
engine = "kubernetes"
kubeconfig = "{kubeconfig}"
namespace = "default"
image = "{image}"

[pools.pool-kubernetes]
cluster = "{cluster}"

[limits]
sample_seconds = 1

[runner]
url = "http://{address}:{port}"
"""
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
}


@pytest.fixture(scope="module")
def service(kubernetes: Kubernetes) -> Iterator[Service]:
    with running() as one:
        kubeconfig = one.config.with_name("kubeconfig")
        values = {"cluster": CLUSTER, "kubeconfig": kubeconfig, "image": PYTHON}
        values |= {"address": kubernetes.address, "port": one.port}
        one.config.write_text(CONFIG.format_map(values))
        kubernetes.write_kubeconfig(kubeconfig, "")
        for document in yaml.safe_load_all(
            command("cluster", "manifest", CLUSTER, "--config", str(one.config))
        ):
            if document["kind"] != "Namespace":
                path = PATHS[document["kind"]].format(namespace=document["metadata"]["namespace"])
                kubernetes.request("POST", path, document)
        kubernetes.write_kubeconfig(kubeconfig, token_of("turnout", kubernetes))
        yield one.start("--host", "0.0.0.0")


def command(*arguments: str, service: Service | None = None, code: int = 0) -> str:
    variables = {"PYTHONPATH": python_path()}
    if service:
        variables |= {"TURNOUT_ENDPOINT": service.endpoint, "TURNOUT_KEY": f"{KEY.id}:{KEY.secret}"}
    done = subprocess.run(
        [sys.executable, "-m", "turnout.cli.main", *arguments],
        env=os.environ | variables, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def submit(service: Service, name: str, *argv: str, **fields: Any) -> Any:
    return service.create(name, *argv, Cluster=CLUSTER, **fields)


def ended(service: Service, name: str) -> Any:
    return service.wait(name, timeout=120)


def lines(service: Service, name: str) -> list[str]:
    return [line.Log for line in service.logs(name, CLUSTER)]


def eventually(condition: Callable[[], Any], seconds: float = 120) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)
    return found


def pods(kubernetes: Kubernetes, service: Service, name: str) -> list[dict[str, Any]]:
    job = str(service.native(f"/jobs/{name}")["id"])
    return [pod for pod in kubernetes.list("pods") if pod["metadata"]["labels"].get("turnout/job") == job]


def test_a_job_of_tia(service: Service, kubernetes: Kubernetes):
    submit(service, "hello", "sh", "-c", "echo hello from $(id -u) at $PWD; sleep 2; exit 3")
    service.wait("hello", "started", 120)
    [pod] = pods(kubernetes, service, "hello")
    labels = pod["metadata"]["labels"]
    assert labels["app.kubernetes.io/managed-by"] == "turnout"
    assert (labels["app.kubernetes.io/name"], labels["turnout/replica"]) == ("hello", "master-0")
    assert labels["turnout/job"] == str(service.native("/jobs/hello")["id"])
    job = ended(service, "hello")
    assert (job["state"], job["replicas"][0]["exit_code"]) == ("failed", 3)
    assert lines(service, "hello") == ["hello from 1000 at /workspace"]


def test_nothing_stays_on_the_cluster(service: Service, kubernetes: Kubernetes):
    submit(
        service, "brief", "true", ScaleTier="CUSTOM", MasterType="1U1G0P", WorkerType="1U1G0P", WorkerCount=1
    )
    eventually(lambda: left(kubernetes))
    assert ended(service, "brief")["state"] == "succeeded"
    eventually(lambda: not left(kubernetes))


def test_a_gang_finds_its_members(service: Service):
    roles = {"ScaleTier": "CUSTOM", "WorkerCount": 1, "MasterType": "1U1G0P", "WorkerType": "1U1G0P"}
    submit(service, "gang", "python", "-c", GREET_PEERS, **roles)
    job = ended(service, "gang")
    assert job["state"] == "succeeded", lines(service, "gang")
    greeted = [line for line in lines(service, "gang") if "greeted" in line]
    assert sorted(greeted) == ["chief 0 was greeted by worker 0", "worker 0 was greeted by chief 0"]


MEET_BY_NAME = """
import os, socket, time
me, job = int(os.environ["VC_TASK_INDEX"]), os.environ["MA_VJ_NAME"]
listener = socket.create_server(("", 29000))
for peer in (f"{job}-worker-{1 - me}", f"{job}-worker-{1 - me}.{job}"):
    while True:
        try:
            connection = socket.create_connection((peer, 29000))
            break
        except OSError:
            time.sleep(0.1)
    address = os.environ["VC_WORKER_HOSTS"].split(",")[1 - me]
    print(peer.replace(job, "JOB"), connection.getpeername()[0] == address, flush=True)
for _ in range(2):
    listener.accept()
"""


def test_replicas_of_modelarts_find_each_other_by_name(service: Service, kubernetes: Kubernetes):
    huawei = Huawei(service)
    spec = {"resource": {"pool_id": "pool-kubernetes", "node_count": 2}}
    with ClusterDns(kubernetes):
        made = huawei.create("names", f"python3 -c {shlex.quote(MEET_BY_NAME)}", spec=spec).metadata.id
        job = ended(service, "names")
    said = [huawei.log(made, f"worker-{rank}") for rank in range(2)]
    assert job["state"] == "succeeded", (job["message"], said)
    for rank in range(2):
        assert f"JOB-worker-{1 - rank} True" in said[rank]
        assert f"JOB-worker-{1 - rank}.JOB True" in said[rank]


def test_inputs_and_outputs_of_modelarts_are_at_their_exact_paths(service: Service):
    service.put("obs://kube-data/in/a.txt", "some data")
    huawei = Huawei(service)
    channels = {
        "inputs": [{"name": "data", "remote": {"obs": {"obs_url": "/kube-data/in/"}}}],
        "outputs": [{"name": "model", "remote": {"obs": {"obs_url": "/kube-data/out/"}}}],
    }
    spec = {"resource": {"pool_id": "pool-kubernetes", "node_count": 1}}
    script = "echo $data; cat $data/a.txt; touch /cache/scratch; tr a-z A-Z < $data/a.txt > $model/b.txt"
    made = huawei.create("data-kube", script, algorithm=channels, spec=spec).metadata.id
    job = ended(service, "data-kube")
    assert job["state"] == "succeeded", job
    assert "some data" in huawei.log(made)
    assert "/home/ma-user/" in huawei.log(made)
    assert (service.data / "buckets/kube-data/out/b.txt").read_text() == "SOME DATA"


def test_the_image_that_a_vertex_job_names(service: Service, kubernetes: Kubernetes):
    google = Google(service, "default")
    pool = {
        "machineSpec": {"machineType": "n4-highcpu-2"},
        "replicaCount": 1,
        "containerSpec": {"imageUri": PYTHON, "command": ["sh", "-c", "echo up; sleep 600"]},
    }
    spec = {"workerPoolSpecs": [pool], "persistentResourceId": CLUSTER}
    made = google.send("POST", "customJobs", {"displayName": "long", "jobSpec": spec}).body
    job = made["name"].rpartition("/")[2]
    service.wait(job, "started", 120)
    [pod] = pods(kubernetes, service, job)
    assert pod["spec"]["containers"][0]["image"] == PYTHON
    google.send("POST", f"/v1/{made['name']}:cancel", {})
    ended(service, job)
    shown = google.get(made["name"])
    assert shown["state"] == "JOB_STATE_CANCELLED", shown


def test_an_image_that_cannot_be_pulled_is_named_to_a_vertex_user(service: Service):
    google = Google(service, "default")
    pool = {
        "machineSpec": {"machineType": "n4-highcpu-2"},
        "replicaCount": 1,
        "containerSpec": {"imageUri": "localhost/Not-A-Name:1", "command": ["true"]},
    }
    spec = {"workerPoolSpecs": [pool], "persistentResourceId": CLUSTER}
    made = google.send("POST", "customJobs", {"displayName": "misspelt", "jobSpec": spec}).body
    ended(service, made["name"].rpartition("/")[2])
    shown = google.get(made["name"])
    assert shown["state"] == "JOB_STATE_FAILED", shown
    assert "the name of its image is not valid" in shown["error"]["message"]


def test_a_killed_service_finds_everything_again(service: Service):
    program = (
        "import time\nfor i in range(60):\n    print(i, flush=True); time.sleep(0.1)\nraise SystemExit(7)"
    )
    submit(service, "survivor", "python", "-c", program)
    service.wait("survivor", "started", 120)
    service.kill()
    time.sleep(2)
    service.start("--host", "0.0.0.0")
    job = ended(service, "survivor")
    assert job["replicas"][0]["exit_code"] == 7
    assert lines(service, "survivor") == [str(i) for i in range(60)]


def test_a_pod_that_somebody_deletes_is_a_stop_from_outside(service: Service, kubernetes: Kubernetes):
    submit(service, "deleted", "sh", "-c", "echo up; exec sleep 600")
    service.wait("deleted", "started", 120)
    [pod] = pods(kubernetes, service, "deleted")
    kubernetes.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}")
    job = ended(service, "deleted")
    assert job["state"] == "stopped", job
    assert "somebody deleted its pod" in job["message"]


def test_a_job_that_waits_says_why(service: Service):
    submit(service, "too-large", "true", ScaleTier="CUSTOM", MasterType="64U1G0P")
    eventually(lambda: "Insufficient cpu" in command("explain", "too-large", service=service))
    assert "no node has room for it" in command("explain", "too-large", service=service)
    service.delete("too-large", CLUSTER)


def test_a_memory_kill_is_named(service: Service):
    program = "x = bytearray(1200 << 20); x[::4096] = b'x' * len(x[::4096]); print(len(x))"
    submit(service, "greedy", "python", "-c", program, ScaleTier="CUSTOM", MasterType="1U1G0P")
    job = ended(service, "greedy")
    assert job["reason"] == "out of memory", job


def test_a_shell_in_the_pod(service: Service):
    submit(service, "visited", "sh", "-c", "echo up; sleep 600", Debug=True)
    service.wait("visited", "started", 120)
    with open_page(service.native("/jobs/visited/shells")["uris"]["master-0"]).socket() as socket:
        socket.type("echo I am $(id -u); stty size\n")
        assert "I am 1000" in socket.until("20 90\r\n")
        socket.type("exit 3\n")
        assert socket.rest() == {"exit": 3}
    service.delete("visited", CLUSTER)


def test_nodes_are_shown_to_whom_may_list_them(service: Service, kubernetes: Kubernetes):
    def nodes() -> list[dict[str, Any]]:
        return next(one["nodes"] for one in service.native("/clusters")["clusters"] if one["name"] == CLUSTER)

    submit(service, "placed", "sh", "-c", "echo up; exec sleep 600")
    service.wait("placed", "started", 120)
    assert nodes() == []
    # As docs/kubernetes.md says.
    path, name = "/apis/rbac.authorization.k8s.io/v1", {"name": "turnout-nodes"}
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]
    kubernetes.request("POST", f"{path}/clusterroles", {"metadata": name, "rules": rules})
    account = {"kind": "ServiceAccount", "name": "turnout", "namespace": NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", **name}
    binding = {"metadata": name, "subjects": [account], "roleRef": role}
    kubernetes.request("POST", f"{path}/clusterrolebindings", binding)
    [node] = eventually(nodes)
    assert (node["name"], node["state"], node["usable"]) == (kubernetes.node, "Ready", True)
    assert node["capacity"]["cpu"] == kubernetes.cores()
    assert [(job["name"], job["replicas"]) for job in node["jobs"]] == [("placed", 1)]
    assert service.native("/jobs/placed")["replicas"][0]["node"] == kubernetes.node
    service.delete("placed", CLUSTER)


def test_the_check(service: Service, kubernetes: Kubernetes):
    results = json.loads(command("cluster", "check", CLUSTER, "--output=json", service=service))
    assert [result["what"] for result in results] == [
        "API server",
        f"rights in namespace {NAMESPACE}",
        "jobs of several replicas start whole",
        "a pod runs",
        f"a pod reaches http://{kubernetes.address}:{service.port}",
    ]
    assert all(result["ok"] for result in results), results
    assert "Kubernetes v1.20" in results[0]["detail"]
    assert results[3]["detail"].startswith("Python 3.11")


def test_the_check_names_missing_rights(service: Service):
    results = json.loads(command("cluster", "check", "nowhere", "--output=json", service=service, code=1))
    assert [result["ok"] for result in results] == [True, False]
    assert "create pods" in results[1]["detail"]
    assert "turnout cluster manifest nowhere" in results[1]["detail"]
