"""A job as a request of each API: the requests of the other two create a job that does the same."""

from typing import Any

import pytest

from tests.dialects.modelarts import driving as modelarts
from tests.dialects.native.driving import Client
from tests.dialects.vertex import jobs as vertex_jobs
from tests.running import Service

APIS = ("tia", "modelarts", "vertex")
PROGRAM = 'import os, sys; print("says", os.environ.get("GREETING"), open(sys.argv[1]).read(), *sys.argv[2:])'


@pytest.fixture(scope="module", autouse=True)
def data(client: Client) -> None:
    client.send("PUT", "/buckets/shared")
    for key, content in (("code/main.py", PROGRAM), ("data/words.txt", "of data")):
        with client.open("PUT", "/object", content.encode(), url=f"gs://shared/{key}"):
            pass


def tia() -> Any:
    return {
        "Name": "from-tia",
        "Cluster": "ap-beijing",
        "RuntimeVersion": "tia-1.8.0-py3",
        "PackageDir": [
            "cos://shared-1.cos.ap-beijing.myqcloud.com/code:/code",
            "cos://shared-1.cos.ap-beijing.myqcloud.com/data:/data",
        ],
        "Command": ["env", "GREETING=hello", "python3", "main.py"],
        "Args": ["/data/words.txt", "--lr=0.1"],
        "ScaleTier": "CUSTOM",
        "MasterType": "1U1G0P",
    }


def train() -> Any:
    algorithm = {
        "engine": {"engine_id": "pytorch_2.1.0-cuda_11.8-py_3.10-ubuntu_22.04-x86_64"},
        "code_dir": "obs://shared/code/",
        "command": 'python3 code/main.py "$words/words.txt" "--lr=$lr"',
        "working_dir": "/home/ma-user/modelarts/user-job-dir",
        "parameters": [{"name": "lr", "value": "0.1"}],
        "environments": {"GREETING": "hello"},
        "inputs": [{"name": "words", "remote": {"obs": {"obs_url": "obs://shared/data/"}}}],
    }
    resource = {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1}
    return {
        "kind": "job",
        "metadata": {"name": "from_modelarts"},
        "algorithm": algorithm,
        "spec": {"resource": resource},
    }


def custom_job() -> Any:
    container = vertex_jobs.container(
        command=["python3", "/gcs/shared/code/main.py"],
        args=["/gcs/shared/data/words.txt", "--lr=0.1"],
        env=[{"name": "GREETING", "value": "hello"}],
    )
    return vertex_jobs.job(container, displayName="From Vertex", spec={"scheduling": {"timeout": "1800s"}})


@pytest.mark.parametrize("document", [tia(), train(), custom_job()], ids=APIS)
def test_a_job_does_the_same_through_each_api(service: Service, client: Client, document: Any) -> None:
    made = client.post("/jobs", document)
    service.wait(made["id"])
    shown = client.get(f"/jobs/{made['id']}/documents")["documents"]
    assert set(shown) == set(APIS)
    assert not shown[made["dialect"]]["notes"]
    for api in APIS:
        copy = client.post(f"/jobs/{made['id']}/clone", {"api": api, "name": f"as-{api}-{made['dialect']}"})
        assert copy["dialect"] == api
        ended = service.wait(copy["id"])
        with client.open("GET", f"/jobs/{copy['id']}/logs") as log:
            printed = log.read()
        assert ended["state"] == "succeeded", printed
        assert b"says hello of data --lr=0.1" in printed


def test_what_has_no_counterpart_is_named(client: Client) -> None:
    pools = [vertex_jobs.container(command=["sleep", "1"]), vertex_jobs.container(command=["sleep", "2"])]
    spec = {"scheduling": {"timeout": "1800s"}, "enableDashboardAccess": True}
    made = client.post("/jobs", vertex_jobs.job(*pools, displayName="Rich job", spec=spec))
    shown = client.get(f"/jobs/{made['id']}/documents")["documents"]
    in_tia = "\n".join(shown["tia"]["notes"])
    assert "TI-A has no field for the time limit and the program's own page, which are left out." in in_tia
    assert "that of workerpool1 is left out" in in_tia
    assert shown["tia"]["document"]["WorkerCount"] == 1
    assert shown["modelarts"]["document"]["spec"]["auto_stop"] == {"time_unit": "HOURS", "duration": 1}
    assert [task["role"] for task in shown["modelarts"]["document"]["tasks"]] == [
        "workerpool0",
        "workerpool1",
    ]
    assert client.post(f"/jobs/{made['id']}/clone", {"api": "tia"})["name"] == "rich-job-2"
    client.send("DELETE", f"/jobs/{made['id']}")


def test_several_nodes_and_gpus_are_translated(client: Client) -> None:
    resource = {"flavor_id": "modelarts.vm.gpu.t4u8", "node_count": 1}
    made = client.post("/jobs", modelarts.job("nodes", "sleep 1", spec={"resource": resource}))
    shown = client.get(f"/jobs/{made['id']}/documents")["documents"]
    assert shown["tia"]["document"]["MasterType"] == "8U32G1P"
    [pool] = shown["vertex"]["document"]["jobSpec"]["workerPoolSpecs"]
    assert pool["machineSpec"]["acceleratorType"] == "NVIDIA_TESLA_T4"
    assert client.send("POST", f"/jobs/{made['id']}/clone", {"api": "azure"}).status == 400
    client.send("DELETE", f"/jobs/{made['id']}")
