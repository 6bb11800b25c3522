"""Searches through the service: killed with -9 at its worst moments, and by Vertex' own documents."""

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.running import KEY, Service, running
from turnout.access import make_token

PROGRAM = """
import os, sys, time
x = float(dict(a.lstrip('-').split('=') for a in sys.argv[1:])['x'])
print('TURNOUT_METRIC score=%r step=1' % x, flush=True)
time.sleep(0.05)
"""


@pytest.fixture
def service() -> Iterator[Service]:
    with running() as service:
        yield service.start()


def call(service: Service, method: str, path: str, body: Any = None) -> Any:
    headers = {"Authorization": f"Bearer {make_token(KEY, time.time())}", "Content-Type": "application/json"}
    url = f"{service.endpoint}/v1/projects/default/locations/us-central1/{path}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def tuning_job(trials: int, wide: int = 2) -> dict[str, Any]:
    container = {"imageUri": "python:3", "command": ["python3", "-c", PROGRAM]}
    return {
        "displayName": "search",
        "maxTrialCount": trials,
        "parallelTrialCount": wide,
        "studySpec": {
            "metrics": [{"metricId": "score", "goal": "MAXIMIZE"}],
            "parameters": [{"parameterId": "x", "doubleValueSpec": {"minValue": 0, "maxValue": 1}}],
        },
        "trialJobSpec": {
            "workerPoolSpecs": [
                {
                    "machineSpec": {"machineType": "n1-standard-4"},
                    "replicaCount": 1,
                    "containerSpec": container,
                }
            ]
        },
    }


def until(service: Service, name: str, holds: Callable[[Any], bool]) -> Any:
    path = name.partition("us-central1/")[2]
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        job = call(service, "GET", path)
        if holds(job):
            return job
        time.sleep(0.1)
    raise AssertionError(f"{job}\n{service.log.read_text()}")


def ended(job: Any) -> bool:
    return job["state"] in ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")


def test_a_tuning_job_of_vertex(service: Service) -> None:
    made = call(service, "POST", "hyperparameterTuningJobs", tuning_job(6))
    job = until(service, made["name"], ended)
    assert job["state"] == "JOB_STATE_SUCCEEDED", job
    assert [trial["state"] for trial in job["trials"]] == ["SUCCEEDED"] * 6
    for trial in job["trials"]:
        assert trial["finalMeasurement"]["metrics"][0]["value"] == trial["parameters"][0]["value"]


def test_nothing_is_lost_or_made_twice_when_the_service_is_killed(service: Service) -> None:
    made = call(service, "POST", "hyperparameterTuningJobs", tuning_job(12))
    for done in (1, 4, 8):
        before = until(service, made["name"], lambda job, done=done: _done(job) >= done)
        service.kill()
        service.start()
        after = call(service, "GET", made["name"].partition("us-central1/")[2])
        known = {trial["id"]: trial for trial in before.get("trials", ())}
        for trial in after["trials"]:
            old = known.get(trial["id"], trial)
            assert trial["parameters"] == old["parameters"]
            if old["state"] == "SUCCEEDED":
                assert trial == old
    job = until(service, made["name"], ended)
    assert job["state"] == "JOB_STATE_SUCCEEDED", job
    assert [trial["id"] for trial in job["trials"]] == [str(number) for number in range(1, 13)]
    assert {trial["state"] for trial in job["trials"]} == {"SUCCEEDED"}


def _done(job: Any) -> int:
    return sum(trial["state"] == "SUCCEEDED" for trial in job.get("trials", ()))
