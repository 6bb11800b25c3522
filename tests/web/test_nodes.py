"""A job of several nodes: a link for each, which leads into that one."""

from typing import Any

from tests.running import Service
from tests.web.custom_jobs import vertex
from tests.web.visitor import open_page

PLACE = "projects/default/locations/us-central1"
NODES = ["workerpool0-0", "workerpool1-0", "workerpool1-1"]


def pool(replicas: int) -> dict[str, Any]:
    return {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": replicas,
        "containerSpec": {"imageUri": "python:3", "command": ["sleep", "1000"]},
    }


def test_every_node_has_its_own_shell(service: Service) -> None:
    spec = {"workerPoolSpecs": [pool(1), pool(2)], "enableWebAccess": True}
    made = vertex(service, "POST", f"{PLACE}/customJobs", {"displayName": "nodes", "jobSpec": spec})
    assert "webAccessUris" not in made
    job_id = made["name"].rpartition("/")[2]
    service.native(f"/jobs/{job_id}/wait?for=started&timeout=30")
    links = vertex(service, "GET", made["name"])["webAccessUris"]
    assert sorted(links) == NODES
    for node in NODES:
        with open_page(links[node]).socket() as socket:
            socket.type("echo $CLOUD_ML_JOB_ID is on ${TURNOUT_REPLICA##*/}.\n")
            socket.until(f"{job_id} is on {node}.")
    page = open_page(vertex(service, "GET", made["name"])["webAccessUris"]["workerpool1-1"])
    with page.socket() as socket:
        socket.until("$ ")
        vertex(service, "POST", made["name"] + ":cancel", {})
        assert socket.rest() == {"exit": 137, "reason": "the job ended"}
    service.native(f"/jobs/{job_id}/wait?for=ended&timeout=30")
    assert "webAccessUris" not in vertex(service, "GET", made["name"])
