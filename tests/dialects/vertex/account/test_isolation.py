"""Projects do not see each other: whoever has a key of another one finds nothing, whatever they name."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from google.api_core.exceptions import Forbidden, NotFound
from google.cloud.aiplatform_v1 import CustomJob

from tests.dialects.vertex import jobs
from tests.dialects.vertex.driving import Cloud
from tests.running import KEY, Service
from turnout.access import Key, make_token
from turnout.dialects.vertex.resource_names import project_number

MINE = "mine"


def native(service: Service, method: str, path: str, key: Key = KEY, body: Any = None) -> Any:
    headers = {"Authorization": f"Bearer {make_token(key, time.time())}"}
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"{service.endpoint}/turnout/v1{path}", data, headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def mine(service: Service) -> Cloud:
    return Cloud(service, MINE)


@pytest.fixture(scope="module")
def stranger(service: Service) -> Cloud:
    made = native(service, "POST", "/keys", body={"project": "theirs"})
    return Cloud(service, "theirs", Key(made["id"], made["secret"], "theirs"))


def test_its_buckets_are_refused_at_once(stranger: Cloud, mine: Cloud):
    """First in this file: the job of the others may fill the machine."""
    output = {"baseOutputDirectory": {"outputUriPrefix": "gs://bucket-of-mine/run"}}
    mine.wait(mine.shell("echo x > /gcs/bucket-of-mine/run/x", spec=output)["name"])
    pools = (
        jobs.container(command=["cat", "/gcs/bucket-of-mine/run/x"]),
        jobs.package(packageUris=["gs://bucket-of-mine/run/x.tar.gz"]),
    )
    for document in (jobs.job(spec=output), *map(jobs.job, pools)):
        status, code, message = stranger.send("POST", "customJobs", document).error
        assert (status, code) == (403, "PERMISSION_DENIED")
        assert "belongs to another project" in message


@pytest.fixture(scope="module")
def job(mine: Cloud) -> Iterator[Any]:
    """One that runs, with a shell and a dashboard."""
    made = mine.shell(
        "echo a secret; sleep 1000", spec={"enableWebAccess": True, "enableDashboardAccess": True}
    )
    yield mine.wait(made["name"], "JOB_STATE_RUNNING")
    mine.send("POST", f"/v1/{made['name']}:cancel", {})
    mine.wait(made["name"])


def id_of(job: Any) -> str:
    return job["name"].rpartition("/")[2]


@pytest.mark.parametrize("project", [MINE, project_number(MINE)])
def test_another_project_is_forbidden(stranger: Cloud, job: Any, project: str):
    client = stranger.client()
    parent = f"projects/{project}/locations/us-central1"
    name = f"{parent}/customJobs/{id_of(job)}"
    for call in (client.get_custom_job, client.cancel_custom_job, client.delete_custom_job):
        with pytest.raises(Forbidden, match="the token is for the project theirs"):
            call(name=name)
    with pytest.raises(Forbidden):
        client.list_custom_jobs(parent=parent)
    with pytest.raises(Forbidden):
        client.create_custom_job(parent=parent, custom_job=CustomJob(display_name="x"))


def test_its_jobs_are_not_found_under_ones_own(stranger: Cloud, job: Any):
    client, name = stranger.client(), f"{stranger.parent}/customJobs/{id_of(job)}"
    for call in (client.get_custom_job, client.cancel_custom_job, client.delete_custom_job):
        with pytest.raises(NotFound):
            call(name=name)
    every = f'display_name:* OR create_time>"2000-01-01T00:00:00Z" OR name="{job["name"]}"'
    assert stranger.send("GET", f"customJobs?filter={quote(every)}").status == 400
    every = 'display_name:* OR create_time>"2000-01-01T00:00:00Z"'
    assert stranger.send("GET", f"customJobs?filter={quote(every)}") == (200, {})


def test_nor_are_its_logs(stranger: Cloud, mine: Cloud, job: Any):
    assert mine.entries(job)["entries"]
    assert stranger.entries(job) == {}
    for names in ([f"projects/{MINE}"], ["projects/theirs", f"projects/{project_number(MINE)}"]):
        assert stranger.entries(job, resourceNames=names)["error"]["status"] == "PERMISSION_DENIED"


def test_nor_its_shells_and_its_dashboard(stranger: Cloud, job: Any, service: Service):
    with pytest.raises(urllib.error.HTTPError) as refused:
        native(service, "GET", f"/jobs/{id_of(job)}/shells", stranger.key)
    with refused.value as answer:
        assert answer.code == 404
    link = job["webAccessUris"]["workerpool0-0"]
    ticket = link.partition("?")[2]
    elsewhere = f"{service.endpoint}/turnout/shells/theirs/{id_of(job)}/workerpool0-0?{ticket}"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(elsewhere, timeout=30)
    with refused.value as answer:
        assert answer.code == 403
    dashboard = job["webAccessUris"]["workerpool0-0:dashboard"].partition("?")[0]
    for query in ("", f"?{ticket.replace('ticket=', 'turnout-ticket=')}"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(dashboard + query, timeout=30)
        with refused.value as answer:
            assert answer.code == 403


def test_page_tokens_and_operations_are_good_at_home_only(stranger: Cloud, mine: Cloud):
    for _ in range(2):
        mine.create()
    token = mine.send("GET", "customJobs?pageSize=1").body["nextPageToken"]
    status, code, message = stranger.send("GET", f"customJobs?pageToken={token}").error
    assert (status, code) == (400, "INVALID_ARGUMENT")
    assert "with the same parent" in message
    cancelled = mine.create()
    mine.send("POST", f"/v1/{cancelled['name']}:cancel", {})
    mine.wait(cancelled["name"])
    operation = mine.send("DELETE", f"/v1/{cancelled['name']}").body["name"]
    assert stranger.send("GET", f"/v1/{operation}").status == 403
    assert stranger.send("GET", f"operations/{operation.rpartition('/')[2]}").status == 404
