"""Tags of jobs: create, delete, find jobs by them."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.dialects.modelarts.driving import Cloud, refused, send
from tests.running import Service


def tagged(cloud: Cloud, name: str, **tags: str) -> str:
    job_id = cloud.create(name).metadata.id
    put(cloud, job_id, **tags)
    return job_id


def put(cloud: Cloud, job_id: str, **tags: str) -> None:
    body = {"tags": [{"key": key, "value": value} for key, value in tags.items()]}
    cloud("create_train_job_tags", training_job_id=job_id, body=body)


def tags_of(cloud: Cloud, job_id: str) -> dict[str, str]:
    return {tag.key: tag.value for tag in cloud("show_train_job_tags", training_job_id=job_id).tags}


def test_put_on_and_taken_off(cloud: Cloud):
    job_id = tagged(cloud, "tagged", team="red", stage="dev")
    put(cloud, job_id, stage="prod")
    assert tags_of(cloud, job_id) == {"team": "red", "stage": "prod"}
    gone = {"tags": [{"key": "team", "value": "red"}, {"key": "stage", "value": "another"}, {"key": "none"}]}
    cloud("delete_train_job_tags", training_job_id=job_id, body=gone)
    assert tags_of(cloud, job_id) == {"stage": "prod"}


def test_the_answers_are_204_as_terraform_insists(service: Service, cloud: Cloud):
    job_id = cloud.create("insists").metadata.id
    for method, verb in (("POST", "create"), ("DELETE", "delete")):
        path = f"/v2/default/modelarts-training-job/{job_id}/tags/{verb}"
        answer: httpx.Response = send(service, method, path, '{"tags": [{"key": "a", "value": "b"}]}')
        assert (answer.status_code, answer.content) == (204, b"")


def test_all_tags_of_a_project(service: Service):
    cloud = Cloud(service, project="tag-project")
    tagged(cloud, "one", team="red")
    tagged(cloud, "two", team="blue", stage="dev")
    cloud.create("three")
    shown = {tag.key: tag.values for tag in cloud("list_training_job_tags").tags}
    assert shown == {"team": ["blue", "red"], "stage": ["dev"]}


def test_found_by(service: Service):
    cloud = Cloud(service, project="tag-search")
    tagged(cloud, "red-dev", team="red", stage="dev")
    tagged(cloud, "blue-dev", team="blue", stage="dev")
    cloud.create("untagged")

    def find(**body: object) -> set[str]:
        found = cloud("list_training_jobs_by_tags", body=body)
        count = cloud("count_training_jobs_by_tags", body=body)
        assert found.total_count == count.total_count == len(found.resources)
        return {one.resource_name for one in found.resources}

    assert find(tags=[{"key": "stage", "values": ["dev"]}]) == {"red-dev", "blue-dev"}
    assert find(tags=[{"key": "stage", "values": []}]) == {"red-dev", "blue-dev"}
    assert find(tags=[{"key": "stage", "values": ["dev"]}, {"key": "team", "values": ["red", "x"]}]) == {
        "red-dev"
    }
    assert find(without_any_tag=True) == {"untagged"}
    assert find(matches=[{"key": "resource_name", "value": "-dev"}]) == {"red-dev", "blue-dev"}
    assert find(tags=[{"key": "stage", "values": ["prod"]}]) == set()
    part = cloud("list_training_jobs_by_tags", limit=1, offset=1, body={})
    assert (len(part.resources), part.total_count) == (1, 3)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("", "v"),
        ("k" * 129, "v"),
        (" k", "v"),
        ("k ", "v"),
        ("_sys_k", "v"),
        ("k*", "v"),
        ("k", "v" * 256),
        ("k", "*"),
    ],
)
def test_what_cannot_be_a_tag(cloud: Cloud, key: str, value: str):
    job_id = cloud.create(f"untaggable-{abs(hash((key, value)))}").metadata.id
    with refused("ModelArts.2788", match="tags"):
        cloud("create_train_job_tags", training_job_id=job_id, body={"tags": [{"key": key, "value": value}]})
    assert tags_of(cloud, job_id) == {}


def test_tags_of_a_job_that_is_not_there(cloud: Cloud):
    with refused("ModelArts.2775"):
        tags_of(cloud, "nothing")


def test_tags_that_are_put_on_at_the_same_time(cloud: Cloud):
    job_id = cloud.create("busy").metadata.id
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: put(cloud, job_id, **{f"key{n}": "x"}), range(20)))
    assert len(tags_of(cloud, job_id)) == 20
    with refused("ModelArts.2788", match="20"):
        put(cloud, job_id, one="more")
