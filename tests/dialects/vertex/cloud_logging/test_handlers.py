"""Logs as Cloud Logging shows them."""

from typing import Any

import pytest
from google.api_core.datetime_helpers import DatetimeWithNanoseconds

from tests.dialects.vertex import jobs
from tests.dialects.vertex.driving import PROJECT, Cloud
from turnout.dialects.vertex.names import project_number

SCRIPT = """
echo plain
echo '{"severity": "warning", "message": "careful", "epoch": 3}'
echo '{"message": "no severity"}'
echo '{"severity": 5, "broken'
sleep 0.1
echo trouble >&2
"""


@pytest.fixture(scope="module")
def job(cloud: Cloud) -> Any:
    return cloud.wait(cloud.shell(SCRIPT)["name"])


def said(answer: Any) -> list[Any]:
    return [entry.get("jsonPayload") or entry["textPayload"] for entry in answer.get("entries", [])]


def test_lines_are_entries(cloud: Cloud, job: Any):
    answer = cloud.entries(job, ' AND resource.labels.task_name="workerpool0-0"')
    shown = [(entry["severity"], text) for entry, text in zip(answer["entries"], said(answer), strict=True)]
    assert shown == [
        ("INFO", "plain"),
        ("WARNING", {"message": "careful", "epoch": 3}),
        ("INFO", {"message": "no severity"}),
        ("INFO", '{"severity": 5, "broken'),
        ("ERROR", "trouble"),
        ("INFO", "Task completed. Exit code (0). Exit reason (SUCCEEDED)"),
    ]
    entry = answer["entries"][0]
    assert entry["resource"] == {
        "type": "ml_job",
        "labels": {
            "job_id": job["name"].rpartition("/")[2],
            "project_id": PROJECT,
            "task_name": "workerpool0-0",
        },
    }
    assert entry["logName"] == f"projects/{PROJECT}/logs/workerpool0-0"
    # Their digits end where the zeros begin: as texts they are not in order.
    times = [DatetimeWithNanoseconds.from_rfc3339(entry["timestamp"]) for entry in answer["entries"]]
    assert times == sorted(times)
    assert "nextPageToken" not in answer


def test_the_service_speaks_too(cloud: Cloud, job: Any):
    texts = said(cloud.entries(job, ' AND resource.labels.task_name="service"'))
    assert texts[0] == "Waiting for job to be provisioned."
    assert texts[-1] == "Job completed successfully."
    failed = cloud.wait(cloud.shell("exit 4")["name"])
    texts = said(cloud.entries(failed, " AND severity>=ERROR"))
    assert texts[0] == "Job failed."
    assert texts[1].startswith("The replica workerpool0-0 exited with a non-zero status of 4.")


@pytest.mark.parametrize("order", ["timestamp asc", "timestamp desc"])
@pytest.mark.parametrize("size", [1, 3, 7])
def test_pages_have_each_entry_once(cloud: Cloud, job: Any, order: str, size: int):
    whole = said(cloud.entries(job))
    seen, token = list[Any](), ""
    while True:
        page = cloud.entries(job, orderBy=order, pageSize=size, pageToken=token)
        assert len(said(page)) <= size
        seen += said(page)
        token = page.get("nextPageToken", "")
        if not token:
            break
    assert seen == (whole if order == "timestamp asc" else whole[::-1])


def test_gcloud_goes_on_where_it_was(cloud: Cloud, job: Any):
    """It asks for what is later than the last it has, or of the same time with a greater id."""
    entries = cloud.entries(job)["entries"]
    for number, last in enumerate(entries):
        at = last["timestamp"]
        later = f' AND ((timestamp="{at}" AND insertId>"{last["insertId"]}") OR timestamp>"{at}")'
        assert cloud.entries(job, later).get("entries", []) == entries[number + 1 :]


@pytest.mark.parametrize(
    ("more", "texts"),
    [
        (' textPayload:"LAI"', ["plain"]),
        (" jsonPayload.epoch=3", [{"message": "careful", "epoch": 3}]),
        (" jsonPayload.message:*", [{"message": "careful", "epoch": 3}, {"message": "no severity"}]),
        (" severity>=WARNING AND NOT severity=ERROR", [{"message": "careful", "epoch": 3}]),
        (' timestamp<"2020-01-01T00:00:00Z"', []),
        (' timestamp>"2100-01-01T00:00:00Z"', []),
        (' resource.type="gce_instance"', []),
        (' labels.x="y"', []),
        (f' logName="projects/{PROJECT}/logs/workerpool0-0" severity=ERROR', ["trouble"]),
    ],
)
def test_filters(cloud: Cloud, job: Any, more: str, texts: list[Any]):
    assert said(cloud.entries(job, more)) == texts


def test_a_job_that_runs_shows_what_there_is(cloud: Cloud):
    made = cloud.shell("echo first; sleep 1000")
    cloud.wait(made["name"], "JOB_STATE_RUNNING")
    while "first" not in said(cloud.entries(made)):
        pass
    cloud.send("POST", f"/v1/{made['name']}:cancel", {})
    cloud.wait(made["name"])
    assert said(cloud.entries(made))[-1] == "Job is cancelled."


def test_replicas_have_names(cloud: Cloud):
    pool = jobs.container(command=["/bin/sh", "-c", "echo $HOSTNAME; sleep 0.2"])
    made = cloud.wait(cloud.create(pool, pool | {"replicaCount": 2})["name"])
    tasks = {entry["resource"]["labels"]["task_name"] for entry in cloud.entries(made)["entries"]}
    assert {"workerpool0-0", "workerpool1-0", "workerpool1-1", "service"} >= tasks
    assert {"workerpool0-0", "service"} <= tasks


def test_projects(cloud: Cloud, job: Any):
    assert cloud.entries(job, resourceNames=[f"projects/{project_number(PROJECT)}"])["entries"]
    assert cloud.entries(job, resourceNames=[], projectIds=[PROJECT])["entries"]
    assert cloud.entries(job, resourceNames=["projects/other"]) == {}
    assert cloud.entries({"name": "x/1"}) == {}
    assert cloud.entries({"name": "x/none"}) == {}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"filter": 'severity="ERROR"'}, "filter must name a job here"),
        ({"filter": 'textPayload=~"a+"'}, "must be compared by one of"),
        ({"filter": "severity=LOUD"}, "'LOUD' is not a severity"),
        ({"filter": "timestamp=now"}, "compared with a time such as"),
        ({"filter": "protoPayload.x=1"}, "'protoPayload' is not a field of entries here"),
        ({"filter": "resource..x=1"}, "a field's name must come here"),
        ({"orderBy": "severity"}, "orderBy must be timestamp asc or timestamp desc"),
        ({"pageSize": -1}, "pageSize must not be negative"),
        ({"pageToken": "x"}, "pageToken must be exactly"),
        ({"resourceNames": []}, "resourceNames must name a project"),
        ({"resourceNames": ["folders/1"]}, "'folders/1' must be a project's name"),
        ({"nonsense": 1}, 'Unknown name "nonsense"'),
    ],
)
def test_what_is_refused(cloud: Cloud, job: Any, asked: dict[str, Any], message: str):
    error = cloud.entries(job, **asked)["error"]
    assert error["status"] == "INVALID_ARGUMENT"
    assert message in error["message"]
