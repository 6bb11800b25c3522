"""A project cannot see or change another project's resources, by any id in any call."""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from tests.dialects.modelarts.driving import Cloud, put, refused
from tests.running import KEY, Service, running
from turnout.access import Key, make_token

TASK = {"task_id": "worker-0"}
TAGS = {"tags": [{"key": "k", "value": "v"}]}
IMAGE = {"name": "a", "namespace": "b", "tag": "c"}
JOB_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("show_training_job_details", {}),
    ("change_training_job_description", {"body": {"description": "theirs"}}),
    ("delete_training_job", {}),
    ("stop_training_job", {"body": {"action_type": "terminate"}}),
    ("show_training_job_logs_preview", TASK),
    ("show_training_job_logs_from_aom", TASK),
    ("show_training_job_metrics", TASK),
    ("list_training_job_events", {}),
    ("list_training_job_tasks", {}),
    ("list_training_job_stages", {}),
    ("show_train_job_tags", {}),
    ("create_train_job_tags", {"body": TAGS}),
    ("delete_train_job_tags", {"body": TAGS}),
    ("notify_training_job_information", TASK | {"report_type": "training-event", "body": {"type": "x"}}),
    ("create_save_image_job", TASK | {"body": IMAGE}),
    ("show_training_job_route_plan", {}),
]
OTHER_CALLS = [
    ("show_algorithm_by_uuid", "algorithm_id", "ModelArts.2755"),
    ("delete_algorithm", "algorithm_id", "ModelArts.2755"),
    ("show_training_experiment_details", "experiment_id", "ModelArts.2842"),
    ("delete_training_experiment", "experiment_id", "ModelArts.2842"),
    ("show_workspace", "workspace_id", "ModelArts.0102"),
    ("delete_workspace", "workspace_id", "ModelArts.0102"),
]


class Two(NamedTuple):
    """A project that has something, and the key of another."""

    has: Cloud
    ids: dict[str, str]
    stranger: Cloud
    intruder: Cloud
    """The same key, in the address of the first project."""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running() as one:
        yield one.start()


@pytest.fixture(scope="module")
def two(service: Service) -> Two:
    mine, theirs = (key_for(service, project) for project in ("mine", "theirs"))
    cloud = Cloud(service, mine, "mine")
    put(service, "obs://strangers/code/run.py", "")
    made = cloud.create("secret", "echo secret", metadata={"description": "mine"}).metadata.id
    config = {
        "code_dir": "/strangers/code/",
        "boot_file": "/strangers/code/run.py",
        "engine": {"engine_id": "pytorch_2.5.1-cuda_12.4-py_3.11-ubuntu_22.04-x86_64"},
    }
    algorithm = {"metadata": {"name": "secret"}, "job_config": config}
    ids = {
        "training_job_id": made,
        "algorithm_id": cloud("create_algorithm", body=algorithm).metadata.id,
        "experiment_id": cloud(
            "create_training_experiment", body={"metadata": {"name": "secret"}}
        ).metadata.id,
        "workspace_id": cloud("create_workspace", body={"name": "secret"}).id,
    }
    cloud("create_train_job_tags", training_job_id=made, body=TAGS)
    return Two(cloud, ids, Cloud(service, theirs, "theirs"), Cloud(service, theirs, "mine"))


def key_for(service: Service, project: str) -> Key:
    headers = {"Authorization": f"Bearer {make_token(KEY, time.time())}"}
    url = f"{service.endpoint}/turnout/v1/keys"
    made = httpx.post(url, json={"project": project}, headers=headers, trust_env=False).json()
    return Key(made["id"], made["secret"], project)


@pytest.mark.parametrize(("method", "fields"), JOB_CALLS)
def test_a_job(two: Two, method: str, fields: dict[str, Any]):
    fields = fields | {"training_job_id": two.ids["training_job_id"]}
    with refused("ModelArts.2775"):
        two.stranger(method, **fields)
    with refused("ModelArts.0210", 403):
        two.intruder(method, **fields)


@pytest.mark.parametrize(("method", "field", "code"), OTHER_CALLS)
def test_what_is_around_it(two: Two, method: str, field: str, code: str):
    with refused(code):
        two.stranger(method, **{field: two.ids[field]})
    with refused("ModelArts.0210", 403):
        two.intruder(method, **{field: two.ids[field]})


def test_nothing_of_it_is_listed_or_used(two: Two):
    stranger = two.stranger
    assert stranger("list_training_jobs", body={}).total == 0
    assert stranger("list_algorithms").total == stranger("list_training_experiments").total == 0
    assert stranger("list_training_job_tags").tags == []
    assert stranger("list_training_jobs_by_tags", body={}).total_count == 0
    with refused("ModelArts.2755"):
        stranger.create("by-id", "", algorithm={"id": two.ids["algorithm_id"]})
    with refused("ModelArts.2842"):
        stranger.create("joins", metadata={"training_experiment_reference": {"id": two.ids["experiment_id"]}})
    with refused("ModelArts.0102"):
        stranger.create("enters", metadata={"workspace_id": two.ids["workspace_id"]})
    with refused("ModelArts.2775"):
        item = {"kind": "job", "metadata": {"id": two.ids["training_job_id"]}}
        stranger("batch_delete_training_job", body={"jobs": [item]})
    assert two.has.details(two.ids["training_job_id"]).metadata.description == "mine"


@pytest.mark.parametrize(
    "parts",
    [
        {"algorithm": {"inputs": [{"name": "a", "remote": {"obs": {"obs_url": "/mine-only/x/"}}}]}},
        {"algorithm": {"outputs": [{"name": "a", "remote": {"obs": {"obs_url": "/mine-only/x/"}}}]}},
        {"algorithm": {"code_dir": "/mine-only/x/"}},
        {"spec": {"log_export_path": {"obs_url": "/mine-only/x/"}}},
        {"spec": {"volumes": [{"obs": {"obs_path": "/mine-only/x/", "local_path": "/data"}}]}},
    ],
    ids=str,
)
def test_its_buckets(service: Service, two: Two, parts: dict[str, Any]):
    resource = {"resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1}}
    claims = [{"name": "a", "remote": {"obs": {"obs_url": "/mine-only/x/"}}}]
    made = two.has.create(f"claims-{time.time_ns()}", "touch $a/x", algorithm={"outputs": claims}).metadata.id
    while two.has.details(made).status.phase != "Completed":
        pass
    with refused("ModelArts.2771", match="mine-only"):
        two.stranger.create("peeks", **{**parts, "spec": resource | parts.get("spec", {})})
    assert [path.name for path in (service.data / "buckets" / "mine-only" / "x").iterdir()] == ["x"]
