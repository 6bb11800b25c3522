"""Training jobs through Huawei's own client: create, show, change, stop, delete."""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from huaweicloudsdkcore.exceptions.exceptions import ClientRequestException

from tests.dialects.modelarts.driving import Cloud, job, refused
from tests.running import Service

FOREVER = "sleep 600"


def delete(cloud: Cloud, job_id: str) -> Any:
    return cloud("delete_training_job", training_job_id=job_id)


def stop(cloud: Cloud, job_id: str, action: str = "terminate") -> Any:
    return cloud("stop_training_job", training_job_id=job_id, body={"action_type": action})


def test_create(cloud: Cloud):
    made = cloud.create("first", "echo hello", metadata={"description": "a job"})
    assert made.status_code == 201
    assert uuid.UUID(made.metadata.id)
    assert (made.metadata.name, made.metadata.description, made.metadata.workspace_id) == (
        "first",
        "a job",
        "0",
    )
    assert made.metadata.create_time > 1_600_000_000_000
    status = made.status
    assert (status.phase, status.secondary_phase, status.duration, status.start_time) == (
        "Creating",
        "Creating",
        0,
        0,
    )
    assert status.tasks == ["worker-0"]
    assert made.spec.resource.flavor_detail.flavor_info.cpu.core_num == 2


def test_a_job_that_has_run(service: Service, cloud: Cloud):
    made = cloud.create("has-run", "echo hello")
    service.wait("has-run")
    shown = cloud.details(made.metadata.id)
    assert (shown.status.phase, shown.status.secondary_phase) == ("Completed", "Completed")
    assert shown.status.start_time >= shown.metadata.create_time
    assert shown.algorithm.command == "echo hello"


def test_a_job_that_has_failed(service: Service, cloud: Cloud):
    made = cloud.create("has-failed", "exit 3")
    service.wait("has-failed")
    shown = cloud.details(made.metadata.id)
    assert shown.status.phase == "Failed"
    (task,) = shown.status.task_statuses
    assert (task.task, task.exit_code) == ("worker-0", 3)
    assert "3" in task.message


def test_what_it_gives_can_be_given_back(service: Service, cloud: Cloud):
    made = cloud.create("original", "true", algorithm={"environments": {"A": "b"}})
    shown = json.loads(cloud.details(made.metadata.id).raw_content)
    shown["metadata"]["name"] = "copy"
    again = json.loads(cloud("create_training_job", body=shown).raw_content)
    for part in ("kind", "algorithm", "spec"):
        assert again[part] == shown[part]
    assert service.wait("copy")["state"] == "succeeded"


def test_change(cloud: Cloud):
    job_id = cloud.create("changes", FOREVER).metadata.id
    body = {
        "description": "new",
        "spec": {
            "schedule_policy": {"priority": 3},
            "notification": {"topic_urn": "urn", "events": ["JobFailed"]},
        },
        "metadata": {"annotation": {"mine": "yes"}},
    }
    changed = cloud("change_training_job_description", training_job_id=job_id, body=body)
    assert (changed.status_code, changed.raw_content) == (200, b"null")
    shown = json.loads(cloud.details(job_id).raw_content)
    assert (shown["metadata"]["description"], shown["metadata"]["annotations"]) == ("new", {"mine": "yes"})
    assert shown["spec"]["schedule_policy"] == {"priority": 3}
    assert shown["spec"]["notification"] == {"topic_urn": "urn", "events": ["JobFailed"]}
    delete(cloud, job_id)


def test_changes_add_up_only_so_far(cloud: Cloud):
    made = cloud.create("grows").metadata.id
    for number in range(4):
        body = {"metadata": {"annotation": {f"key-{number}": "x" * (1000 << 10)}}}
        cloud("change_training_job_description", training_job_id=made, body=body)
    with refused("ModelArts.2788", match="metadata.annotation"):
        body = {"metadata": {"annotation": {"last": "x" * (1000 << 10)}}}
        cloud("change_training_job_description", training_job_id=made, body=body)


def test_changes_at_the_same_time(cloud: Cloud):
    job_id = cloud.create("busy-changes").metadata.id

    def annotate(n: int) -> None:
        body = {"metadata": {"annotation": {f"key{n}": "x"}}}
        cloud("change_training_job_description", training_job_id=job_id, body=body)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(annotate, range(20)))
    assert len(cloud.details(job_id).metadata.annotations) == 20


def test_the_priority_of_a_job_that_has_ended(service: Service, cloud: Cloud):
    job_id = cloud.create("has-ended").metadata.id
    service.wait("has-ended")
    with refused("ModelArts.2878", 409, "priority"):
        body = {"spec": {"schedule_policy": {"priority": 2}}}
        cloud("change_training_job_description", training_job_id=job_id, body=body)


@pytest.mark.parametrize(
    ("body", "code", "match"),
    [
        ({"description": "x" * 257}, "ModelArts.2788", "description"),
        ({"description": 1}, "ModelArts.2788", "description"),
        ({"spec": {"schedule_policy": {"priority": 4}}}, "ModelArts.2788", "priority"),
        ({"spec": {"schedule_policy": {"preemptible": True}}}, "ModelArts.2858", "preemptible"),
        ({"spec": {"notification": {"events": ["Nothing"]}}}, "ModelArts.2788", "events"),
        (
            {"metadata": {"annotation": {"fault-tolerance/job-retry-num": "1"}}},
            "ModelArts.2858",
            "annotation",
        ),
    ],
)
def test_what_cannot_be_changed(cloud: Cloud, body: dict[str, Any], code: str, match: str):
    job_id = cloud.create(f"stays-{uuid.uuid4()}", FOREVER).metadata.id
    before = cloud.details(job_id).metadata.description
    with refused(code, match=match):
        cloud("change_training_job_description", training_job_id=job_id, body=body)
    assert cloud.details(job_id).metadata.description == before
    delete(cloud, job_id)


def test_stop(service: Service, cloud: Cloud):
    job_id = cloud.create("stops", FOREVER).metadata.id
    service.wait("stops", "started")
    stopped = stop(cloud, job_id)
    assert stopped.status_code == 202
    assert stopped.status.phase in ("Terminating", "Terminated")
    service.wait("stops")
    assert cloud.details(job_id).status.phase == "Terminated"
    with refused("ModelArts.2796", 409):
        stop(cloud, job_id)


def test_only_termination_is_an_action(cloud: Cloud):
    job_id = cloud.create("acts", FOREVER).metadata.id
    with refused("ModelArts.2812", match="terminate"):
        stop(cloud, job_id, "restart")
    delete(cloud, job_id)


def test_delete(service: Service, cloud: Cloud):
    job_id = cloud.create("goes", FOREVER).metadata.id
    service.wait("goes", "started")
    gone = delete(cloud, job_id)
    assert (gone.status_code, gone.raw_content) == (202, b'""')
    with refused("ModelArts.2775"):
        cloud.details(job_id)
    with refused("ModelArts.2775"):
        delete(cloud, job_id)
    assert cloud.create("goes").metadata.id != job_id


def test_delete_several(cloud: Cloud):
    ids = [cloud.create(f"several-{n}").metadata.id for n in range(3)]
    body = {"jobs": [{"kind": "job", "metadata": {"id": one}} for one in ids]}
    wrong = {"jobs": [*body["jobs"], {"kind": "job", "metadata": {"id": "none"}}]}
    with refused("ModelArts.2775"):
        cloud("batch_delete_training_job", body=wrong)
    assert cloud.details(ids[0]).metadata.id == ids[0]
    cloud("batch_delete_training_job", body=body)
    for one in ids:
        with refused("ModelArts.2775"):
            cloud.details(one)
    with refused("ModelArts.2788", match="jobs"):
        cloud("batch_delete_training_job", body={"jobs": []})


def test_names(cloud: Cloud):
    made = cloud.create("unique")
    assert cloud("validate_training_job_name", job_name="unique").is_duplicate is True
    assert cloud("validate_training_job_name", job_name="free").is_duplicate is False
    with refused("ModelArts.2751", match="unique"):
        cloud.create("unique")
    delete(cloud, made.metadata.id)
    assert cloud("validate_training_job_name", job_name="unique").is_duplicate is False


def test_cards_that_are_not_there(cloud: Cloud):
    with refused("ModelArts.2815", match="GPU"):
        resource = {"flavor_id": "modelarts.p3.large.public", "node_count": 2}
        cloud.create("greedy", spec={"resource": resource})
    assert cloud("validate_training_job_name", job_name="greedy").is_duplicate is False


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ({"algorithm": {"code_dir": "/no-such-bucket/code/"}}, "ModelArts.2757"),
        ({"spec": {"resource": {"flavor_id": "none"}}}, "ModelArts.2781"),
        ({"spec": {"resource": {"pool_id": "none"}}}, "ModelArts.2890"),
        ({"metadata": {"workspace_id": "none"}}, "ModelArts.0102"),
        ({"metadata": {"name": "no spaces"}}, "ModelArts.2788"),
    ],
)
def test_what_cannot_be_a_job(cloud: Cloud, parts: dict[str, Any], code: str):
    with pytest.raises(ClientRequestException) as caught:
        cloud("create_training_job", body=job("never", **parts))
    assert caught.value.error_code == code
    assert cloud("validate_training_job_name", job_name="never").is_duplicate is False


def test_jobs_of_another_api_are_not_shown(service: Service, cloud: Cloud):
    service.create("from-tencent", "true")
    other = service.wait("from-tencent")
    with refused("ModelArts.2775"):
        cloud.details(other["uuid"])
