"""What Terraform's provider for Huawei Cloud does with a training job, request by request."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dialects.modelarts.conftest import sdk_home as sdk_home
from tests.dialects.modelarts.driving import Cloud, job, refused, send
from tests.running import Service, running

FINISHED = ("Running", "Completed", "Pending", "Failed", "Abnormal")
"""The phases in which the provider takes a job as created."""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running() as one:
        yield one.start()


def create(service: Service, name: str, **spec: Any) -> str:
    """Sends only fields that are not null, and uses only the id of the response."""
    body = job(name, "sleep 600", algorithm={"environments": {"A": "b"}}, spec=spec)
    answer = send(service, "POST", "/v2/default/training-jobs", json.dumps(body))
    assert answer.status_code == 201
    return answer.json()["metadata"]["id"]


def phase(service: Service, job_id: str) -> str:
    return send(service, "GET", f"/v2/default/training-jobs/{job_id}").json()["status"]["phase"]


def test_the_life_of_a_resource(service: Service):
    job_id = create(service, "resource", auto_stop={"time_unit": "HOURS", "duration": 1})
    path = f"/v2/default/training-jobs/{job_id}"
    assert phase(service, job_id) in FINISHED
    tags = f"/v2/default/modelarts-training-job/{job_id}/tags"
    put = send(service, "POST", f"{tags}/create", '{"tags": [{"key": "owner", "value": "terraform"}]}')
    assert put.status_code == 204
    assert send(service, "GET", tags).json() == {"tags": [{"key": "owner", "value": "terraform"}]}
    shown = send(service, "GET", path).json()
    assert isinstance(shown["algorithm"]["environments"], dict)
    assert isinstance(shown["metadata"]["create_time"], int)
    assert shown["spec"]["auto_stop"] == {"time_unit": "HOURS", "duration": 1}
    changed = send(service, "PUT", path, '{"description": "changed"}')
    assert (changed.status_code, changed.content) == (200, b"null")
    taken = send(service, "DELETE", f"{tags}/delete", '{"tags": [{"key": "owner", "value": "terraform"}]}')
    assert taken.status_code == 204
    assert send(service, "DELETE", path, "{}").status_code == 202
    gone = send(service, "GET", path)
    assert (gone.status_code, gone.json()["error_code"]) == (400, "ModelArts.2775")


def test_the_list_is_read_in_pages_of_fifty(service: Service):
    cloud = Cloud(service, project="pages")
    names = {cloud.create(f"listed-{n}").metadata.name for n in range(60)}
    found: list[str] = []
    page = 0
    while True:
        body = {"offset": page, "limit": 50, "sort_by": "create_time", "order": "desc", "filters": []}
        items = cloud("list_training_jobs", body=body).items
        found += [item.metadata.name for item in items]
        page += 1
        if len(items) < 50:
            break
    assert (page, len(found), set(found)) == (2, 60, names)


def test_an_algorithm_that_is_gone(service: Service):
    gone = send(service, "GET", "/v2/default/algorithms/3f5d6706-7b67-408d-8ba0-ec08048c45ed")
    assert (gone.status_code, gone.json()["error_code"]) == (400, "ModelArts.2755")


def test_a_job_runs_and_its_log_is_returned(service: Service):
    cloud = Cloud(service)
    made = cloud.create("says", "echo hello from $MA_TASK_NAME")
    assert service.wait("says")["state"] == "succeeded"
    where = {"training_job_id": made.metadata.id, "task_id": "worker-0"}
    assert "hello from worker" in cloud("show_training_job_logs_preview", **where).content


def test_everything_survives_a_kill_of_the_service(service: Service):
    cloud = Cloud(service)
    made = cloud.create("survives", "sleep 600")
    body = {"tags": [{"key": "a", "value": "b"}]}
    cloud("create_train_job_tags", training_job_id=made.metadata.id, body=body)
    experiment = cloud("create_training_experiment", body={"metadata": {"name": "kept"}}).metadata.id
    service.wait("survives", "started")
    service.kill()
    service.start()
    service.wait("survives", "started")
    assert cloud.details(made.metadata.id).status.phase == "Running"
    (tag,) = cloud("show_train_job_tags", training_job_id=made.metadata.id).tags
    assert (tag.key, tag.value) == ("a", "b")
    assert cloud("show_training_experiment_details", experiment_id=experiment).metadata.name == "kept"
    cloud("delete_training_job", training_job_id=made.metadata.id)
    with refused("ModelArts.2775"):
        cloud.details(made.metadata.id)
