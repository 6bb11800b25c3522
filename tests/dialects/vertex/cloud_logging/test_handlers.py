"""Logs as Cloud Logging shows them."""

import asyncio
import http.client
import json
import time
import urllib.request
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from google.api_core.datetime_helpers import DatetimeWithNanoseconds

from tests.dialects.vertex import jobs
from tests.dialects.vertex.driving import PROJECT, Cloud
from tests.service.test_merged import Recorded
from turnout.dialects.vertex.cloud_logging import handlers, log_filter
from turnout.dialects.vertex.resource_names import project_number
from turnout.job import Event, Job, Replica, ReplicaLog, ReplicaName, State
from turnout.service import JobView, Logs

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
    handlers = cloud.entries(job)["entries"]
    for number, last in enumerate(handlers):
        at = last["timestamp"]
        later = f' AND ((timestamp="{at}" AND insertId>"{last["insertId"]}") OR timestamp>"{at}")'
        assert cloud.entries(job, later).get("entries", []) == handlers[number + 1 :]


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
        ({"filter": 'severity="ERROR"'}, "filter must name a job in this service"),
        ({"filter": 'textPayload=~"a+"'}, "must be compared by one of"),
        ({"filter": "severity=LOUD"}, "'LOUD' is not a severity"),
        ({"filter": "timestamp=now"}, "compared with a time such as"),
        ({"filter": "protoPayload.x=1"}, "'protoPayload' is not a field that this service supports"),
        ({"filter": "resource..x=1"}, "expected a field's name"),
        ({"orderBy": "severity"}, "orderBy must be timestamp asc or timestamp desc"),
        ({"pageSize": -1}, "pageSize must not be negative"),
        ({"pageToken": "x"}, "pageToken must be exactly"),
        ({"resourceNames": []}, "resourceNames must name a project"),
        ({"resourceNames": ["folders/1"]}, "'folders/1' must be a project's name"),
        ({"resourceNames": [f"projects/{PROJECT}"] * 101}, "resourceNames may have 100 names"),
        ({"nonsense": 1}, 'Unknown name "nonsense"'),
    ],
)
def test_what_is_refused(cloud: Cloud, job: Any, asked: dict[str, Any], message: str):
    error = cloud.entries(job, **asked)["error"]
    assert error["status"] == "INVALID_ARGUMENT"
    assert message in error["message"]


MANY = 60_000
LONG_FILTER = " ".join(f'NOT textPayload:"x{number}"' for number in range(96))


@pytest.fixture(scope="module")
def long_job(cloud: Cloud) -> Any:
    return cloud.wait(cloud.shell(f"seq 1 {MANY}")["name"])


@pytest.mark.parametrize("order", ["timestamp asc", "timestamp desc"])
def test_a_long_filter_delays_nobody_and_ends_with_its_client(cloud: Cloud, long_job: Any, order: str):
    process = psutil.Process(cloud.service.process.pid)  # type: ignore[union-attr]

    def used() -> float:
        return sum(process.cpu_times()[:2])

    job_id = long_job["name"].rpartition("/")[2]
    asked = {
        "resourceNames": [f"projects/{PROJECT}"],
        "filter": f'resource.labels.job_id="{job_id}" {LONG_FILTER} textPayload:"never"',
        "orderBy": order,
    }
    clients = [http.client.HTTPConnection("127.0.0.1", cloud.service.port) for _ in range(8)]
    for client in clients:
        headers = {"Authorization": f"Bearer {cloud.token()}"}
        client.request("POST", "/v2/entries:list", json.dumps(asked).encode(), headers)
    answers, before = 0, used()
    while used() - before < 0.5:
        with urllib.request.urlopen(cloud.service.endpoint + "/healthz", timeout=30):
            answers += 1
    assert answers > 25
    for client in clients:
        client.close()
    for _ in range(50):
        before = used()
        time.sleep(0.2)
        if used() - before < 0.05:
            return
    raise AssertionError("it goes on for clients that have gone")


@pytest.mark.parametrize("order", ["timestamp asc", "timestamp desc"])
def test_pages_of_a_long_log_have_each_entry_once(cloud: Cloud, long_job: Any, order: str):
    seen, token = list[int](), ""
    while True:
        page = cloud.entries(
            long_job, ' textPayload:"00" NOT textPayload:"Job"', orderBy=order, pageSize=97, pageToken=token
        )
        seen += [int(text) for text in said(page) if text.isdecimal()]
        token = page.get("nextPageToken", "")
        if not token:
            break
    expected = [number for number in range(1, MANY + 1) if "00" in str(number)]
    assert seen == (expected if order == "timestamp asc" else expected[::-1])


VIEW = JobView(
    Job(7, PROJECT, "vertex", "", "a", "a", "here", State.SUCCEEDED, 0, 1, 1, attempt=1),
    (Replica(7, 1, "workerpool0", 0, ended=1 << 40),),
    b"",
)


class Printed:
    """In the place of Jobs: knows what the job printed, and nothing else."""

    def __init__(self, log: Recorded) -> None:
        self._log = log

    def log(self, job: Job, attempt: int, replica: ReplicaName) -> ReplicaLog:
        return self._log

    async def events(self, view: JobView) -> list[Event]:
        return []


def house_of(log: Recorded) -> Any:
    jobs = Printed(log)
    return SimpleNamespace(jobs=jobs, logs=Logs(jobs))  # type: ignore[arg-type]


def test_a_page_may_end_before_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Google says so too: whoever gets a token asks on, also if the page has no entries."""
    monkeypatch.setattr(handlers, "PAGE_SECONDS", 0)
    found, pages = asyncio.run(read_all(long_lines(5000), 'textPayload:"00"'))
    assert found == [str(number) for number in range(5000) if "00" in str(number)]
    assert pages == 5


def long_lines(count: int) -> Recorded:
    return Recorded((b"".join(b"%d\n" % number for number in range(count)), b""))


async def read_all(log: Recorded, wanted: str) -> tuple[list[str], int]:
    found, token, pages = list[str](), None, 0
    while True:
        reading = handlers._OldestFirst(house_of(log), VIEW, log_filter.parse(wanted), token, 1000)
        page = await reading.read()
        found += [entry.text for entry in page.entries]
        pages += 1
        if page.next is None:
            return found, pages
        token = page.next
