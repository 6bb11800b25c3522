"""Floods that once blocked all other clients: long logs, many conditions, metrics, searches, deleted jobs."""

import json
import sqlite3
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.modelarts.driving import Cloud as Huawei
from tests.dialects.modelarts.driving import get, put
from tests.dialects.vertex.driving import Cloud as Google
from tests.running import KEY, Service, running
from tests.whole.floods import all_at_once, forget_peak, nobody_waits, peak_memory
from turnout.access import make_session_token, make_token

MB = 1 << 20
CONFIG = '[images]\n"tests/anything:1" = "anything"\n'
DAY = 86_400 * 10**9
COPIES = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO"


@pytest.fixture
def service() -> Iterator[Service]:
    with running(CONFIG) as one:
        yield one.start()


@pytest.mark.parametrize(
    ("lines", "conditions"), [(20_000, 20), pytest.param(400_000, 99, marks=pytest.mark.slow)]
)
def test_filters_of_a_long_log(service: Service, lines: int, conditions: int):
    google = Google(service, "default")
    job = custom_job(google, f"seq {lines} | sed 's/^/a line of some length with the number /'")
    service.create("innocent", "true")
    words = "".join(f' AND NOT textPayload:"nothing {number}"' for number in range(conditions - 2))
    wanted = {
        "resourceNames": ["projects/default"],
        "filter": f'resource.labels.job_id="{job}"{words} AND textPayload:"nowhere"',
    }
    others = (lambda: service.describe("innocent"), lambda: service.native("/jobs/innocent"))
    with nobody_waits(*others) as asked_enough:
        while not asked_enough():
            answers = all_at_once(*[lambda: ask(service, "/v2/entries:list", wanted)] * 4)
            assert not any(answer.get("entries") for answer in answers)


@pytest.mark.parametrize("newlines", [20_000_000, pytest.param(300_000_000, marks=pytest.mark.slow)])
def test_eight_requests_for_the_last_lines_of_a_log_of_newlines(service: Service, newlines: int):
    put(service, "obs://bucket/object", "its content")
    service.create("innocent", "echo", "a line")
    huawei = Huawei(service)
    job = huawei.create("long", f"yes '' | head -c {newlines}").metadata.id
    service.wait("long", timeout=120)
    service.wait("innocent")

    def others() -> None:
        assert get(service, "obs://bucket/object") == "its content"
        assert [line.Log for line in service.logs("innocent")] == ["a line"]

    path = f"/v2/default/training-jobs/{job}/logs/worker-0?lines=50"
    with nobody_waits(others) as asked_enough:
        while not asked_enough():
            answers = all_at_once(*[lambda: ask(service, path)] * 8)
            assert {answer["lines"] for answer in answers} == {50}
            # The service prints some lines of its own there.
            assert all(newlines <= int(answer["end_line"]) < newlines + 100 for answer in answers)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("count", [100_000, pytest.param(3_000_000, marks=pytest.mark.slow)])
def test_a_flood_of_metrics(service: Service, count: int):
    google = Google(service, "default")
    forget_peak(service)
    before = peak_memory(service)
    script = f"seq {count} | sed 's/^/TURNOUT_METRIC score=/'"
    made = google.send("POST", "hyperparameterTuningJobs", tuning(script))
    search = made.body["name"].rpartition("/")[2]
    service.wait(search, timeout=380)
    shown = google.send("GET", f"hyperparameterTuningJobs/{search}").body
    (trial,) = shown["trials"]
    assert trial["finalMeasurement"]["metrics"] == [{"metricId": "score", "value": float(count)}]
    assert 100 <= len(trial["measurements"]) <= 1010
    assert len(json.dumps(shown)) < MB
    assert peak_memory(service) - before < 64 * MB


@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [2_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_a_flood_of_searches(service: Service, count: int):
    service.create("innocent", "true")
    path = "/v1/projects/default/locations/us-central1/hyperparameterTuningJobs"
    body = tuning("sleep 600")
    forget_peak(service)
    before = peak_memory(service)

    def create_some() -> list[str]:
        return [ask(service, path, body)["state"] for _ in range(count // 4)]

    with nobody_waits(lambda: service.describe("innocent")) as asked_enough:
        answers = all_at_once(*[create_some] * 4)
        assert answers == [["JOB_STATE_QUEUED"] * (count // 4)] * 4
        while not asked_enough():
            time.sleep(0.1)
    # A search that waits for its turn takes as much as any waiting job; the first hundred take more.
    assert peak_memory(service) - before < 20 * MB + 4096 * count


@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_deleted_jobs_give_their_space_back(service: Service, count: int):
    service.create("old", "true")
    service.wait("old")
    service.delete("old")
    service.create("innocent", "true")
    service.wait("innocent")
    service.terminate()
    database = service.data / "turnout.db"
    copy_deleted(str(database), count)
    large = database.stat().st_size
    service.start()
    made = iter(range(10**9))
    with nobody_waits(
        lambda: service.describe("innocent"), lambda: service.create(f"new-{next(made)}", "true")
    ) as asked_enough:
        while deleted_jobs(str(database)) > 1000 or not asked_enough():
            time.sleep(0.2)
    deadline = time.monotonic() + 60
    while unused_bytes(database) > large / 4 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert unused_bytes(database) < large / 4
    assert service.describe("innocent").State == "Succeeded"


def custom_job(google: Google, script: str) -> str:
    made = google.send("POST", "customJobs", {"displayName": "flood", "jobSpec": spec(script)}).body
    job = made["name"].rpartition("/")[2]
    google.service.wait(job, timeout=120)
    return job


def tuning(script: str) -> dict[str, Any]:
    study = {
        "metrics": [{"metricId": "score", "goal": "MAXIMIZE"}],
        "parameters": [{"parameterId": "x", "doubleValueSpec": {"minValue": 0, "maxValue": 1}}],
    }
    body = {"displayName": "flood", "studySpec": study, "maxTrialCount": 1, "parallelTrialCount": 1}
    return body | {"trialJobSpec": spec(script)}


def spec(script: str) -> dict[str, Any]:
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": 1,
        "containerSpec": {"imageUri": "python:3.11", "command": ["sh", "-c", script]},
    }
    return {"workerPoolSpecs": [pool]}


def ask(service: Service, path: str, body: Any = None) -> Any:
    now = time.time()
    headers = {
        "Authorization": f"Bearer {make_token(KEY, now)}",
        "X-Auth-Token": make_session_token(KEY, "default", now),
    }
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(service.endpoint + path, data, headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def copy_deleted(path: str, count: int) -> None:
    """Copies the row of the deleted job this many times, as if all were deleted a month ago."""
    long_ago = time.time_ns() - 30 * DAY
    first = long_ago // 1_000_000 << 20
    with sqlite3.connect(path) as database:
        ((job,),) = database.execute("SELECT id FROM jobs WHERE deleted IS NOT NULL").fetchall()
        own = {
            "id": f"{first} + i",
            "created": f"{long_ago}",
            "ended": f"{long_ago}",
            "deleted": f"{long_ago}",
        }
        # A million with all that a job leaves would take longer than a test may.
        for table in ("jobs", "documents", "replicas", "events")[: 4 if count < 100_000 else 2]:
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            changed = own if table == "jobs" else {"job": f"{first} + i", "number": "NULL"}
            values = [changed.get(name, f'"{name}"') for name in columns]
            names = ", ".join(f'"{name}"' for name in columns)
            key = "id" if table == "jobs" else "job"
            database.execute(
                f"{COPIES} {table} ({names}) SELECT {', '.join(values)} FROM {table}, n WHERE {key} = {job}",
                (count,),
            )
    database.close()


def unused_bytes(path: Path) -> int:
    """How much of the file holds no data. The new jobs' rows are data: their number depends on the machine's speed."""
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        pages, free, size = (
            database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
    finally:
        database.close()
    return path.stat().st_size - (pages - free) * size


def deleted_jobs(path: str) -> int:
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return database.execute("SELECT count(*) FROM jobs WHERE deleted IS NOT NULL").fetchone()[0]
    finally:
        database.close()
