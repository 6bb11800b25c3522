"""Jobs made through the native API: from a document of any API, from another job; their priority."""

from typing import Any

import pytest

from tests.dialects.modelarts import driving as modelarts
from tests.dialects.native.driving import Client, vertex_job
from tests.running import Service

TIA = {"Cluster": "ap-beijing", "RuntimeVersion": "tia-1.7.0", "Command": ["echo", "hello"]}


@pytest.mark.parametrize(
    ("document", "api", "name"),
    [
        (TIA | {"Name": "by-tia"}, "tia", "by-tia"),
        (modelarts.job("by-modelarts", "echo hello"), "modelarts", "by-modelarts"),
        (vertex_job("by-vertex", "echo hello"), "vertex", "by-vertex"),
        (vertex_job("", "echo hello")["jobSpec"], "vertex", "custom-job"),
    ],
)
def test_a_document_is_recognised_by_its_shape(
    service: Service, client: Client, document: Any, api: str, name: str
) -> None:
    made = client.post("/jobs", document)
    assert (made["dialect"], made["name"]) == (api, name)
    assert service.wait(made["id"])["state"] == "succeeded"


def test_a_job_is_made_in_the_callers_project_under_the_given_name(client: Client) -> None:
    other = client.other("made-here")
    made = other.post("/jobs", TIA | {"Name": "any"}, name="chosen")
    assert (made["name"], made["project"]) == ("chosen", "made-here")
    assert client.send("GET", f"/jobs/{made['id']}", project="default").status == 404
    assert other.send("POST", "/jobs", TIA | {"Name": "x"}, project="default").status == 403


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is not JSON"),
        (b"[" * 100_000, "the body is not JSON"),
        (b'"text"', "the body must be one JSON object"),
        (b"{}", "the document belongs to no API of this service: a Vertex CustomJob has jobSpec"),
        (TIA | {"Name": "Capital"}, "Name: 'Capital' must be lower-case letters"),
        ({"metadata": {"name": "x"}, "algorithm": 7}, "algorithm"),
        ({"displayName": "x", "jobSpec": {"workerPoolSpecs": 7}}, ""),
        (b'{"metadata": "\\ud800"}', ""),
    ],
)
def test_a_wrong_document_is_refused_in_the_words_of_its_api(client: Client, body: Any, message: str) -> None:
    answer = client.send("POST", "/jobs", body)
    assert answer.status == 400, answer.body
    assert answer.error.startswith(message)


@pytest.mark.parametrize(
    ("document", "changes"),
    [
        (TIA | {"Name": "first-tia"}, {"Command": ["echo", "changed"]}),
        (modelarts.job("first-ma", "echo hello"), {"algorithm.command": "echo changed"}),
        (
            vertex_job("first-vertex", "echo hello"),
            {"jobSpec.workerPoolSpecs.0.containerSpec.command": ["echo", "changed"]},
        ),
    ],
)
def test_a_clone_has_a_name_of_its_own_and_the_changes(
    service: Service, client: Client, document: Any, changes: Any
) -> None:
    first = client.post("/jobs", document)
    second = client.post(f"/jobs/{first['id']}/clone", {"changes": changes})
    third = client.post(f"/jobs/{second['id']}/clone")
    assert (second["name"], third["name"]) == (f"{first['name']}-2", f"{first['name']}-3")
    for made in (second, third):
        assert service.wait(made["id"])["state"] == "succeeded"
        with client.open("GET", f"/jobs/{made['id']}/logs") as lines:
            assert b"changed" in lines.read()


def test_a_wrong_change_names_its_path(client: Client) -> None:
    job = client.post("/jobs", vertex_job("to-clone"))["id"]
    for path, message in (
        ("jobSpec.workerPoolSpecs.3.replicaCount", "jobSpec.workerPoolSpecs is a list with 1 items"),
        ("displayName.x", "displayName has no fields"),
        ("jobSpec.workerPoolSpecs.x", "jobSpec.workerPoolSpecs is a list with 1 items"),
        ("x" + ".x" * 200_000, "has more than 100 dots"),
    ):
        answer = client.send("POST", f"/jobs/{job}/clone", {"changes": {path: 1}})
        assert (answer.status, message in answer.error) == (400, True), answer.body
    assert client.send("POST", f"/jobs/{job}/clone", {"nam": "x"}).status == 400
    assert client.send("POST", "/jobs/no-such-job/clone", {}).status == 404


def test_the_priority_of_a_waiting_job_moves_it_in_the_queue(service: Service, client: Client) -> None:
    holds = client.post("/jobs", vertex_job("holds", "sleep 600", gpus=1))
    service.wait(holds["id"], "started")
    first = client.post("/jobs", vertex_job("first", gpus=1))
    second = client.post("/jobs", vertex_job("second", gpus=1))
    assert _place(client, second) == 2
    client.post(f"/jobs/{second['id']}/priority", {"priority": 3})
    assert (_place(client, second), _place(client, first)) == (1, 2)
    assert client.get(f"/jobs/{second['id']}")["priority"] == 3
    for wrong in ({"priority": 4}, {"priority": "high"}, {}, {"priority": 1 << 70}):
        assert client.send("POST", f"/jobs/{second['id']}/priority", wrong).status == 400
    for job in (second, first, holds):
        client.post(f"/jobs/{job['id']}/stop")
        service.wait(job["id"])
    assert client.send("POST", f"/jobs/{first['id']}/priority", {"priority": 2}).status == 409


def _place(client: Client, job: Any) -> int:
    return client.get(f"/jobs/{job['id']}/explain")["queue"]["place"]
