"""Searches through the service, with kill -9 at the worst moments, and with Vertex' own documents."""

import json
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.modelarts.driving import job as modelarts_job
from tests.dialects.modelarts.driving import send
from tests.running import KEY, Service, running
from tests.search.in_process import run
from turnout.access import Key, make_token
from turnout.job import Search
from turnout.job.algorithms import LARGEST_SEED
from turnout.job.search import Algorithm, Metric, Parameter

PROGRAM = """
import os, sys, time
x = float(dict(a.lstrip('-').split('=') for a in sys.argv[1:])['x'])
if 'STARTS' in os.environ:
    open('%s/%s.%s' % (os.environ['STARTS'], os.environ['CLOUD_ML_TRIAL_ID'], time.time_ns()), 'w').close()
print('TURNOUT_METRIC score=%r step=1' % x, flush=True)
time.sleep(0.05)
"""


@pytest.fixture
def service() -> Iterator[Service]:
    with running() as service:
        yield service.start()


def call(
    service: Service, method: str, path: str, body: Any = None, key: Key = KEY, project: str = "default"
) -> Any:
    headers = {"Authorization": f"Bearer {make_token(key, time.time())}", "Content-Type": "application/json"}
    url = f"{service.endpoint}/v1/projects/{project}/locations/us-central1/{path}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def tuning_job(trials: int, wide: int = 2, starts: Path | None = None, **study: Any) -> dict[str, Any]:
    """`starts`: the directory in which each start of a trial creates a file."""
    env = [{"name": "STARTS", "value": str(starts)}] if starts else []
    container = {"imageUri": "python:3", "command": ["python3", "-c", PROGRAM], "env": env}
    return {
        "displayName": "search",
        "maxTrialCount": trials,
        "parallelTrialCount": wide,
        "studySpec": {
            "metrics": [{"metricId": "score", "goal": "MAXIMIZE"}],
            "parameters": [{"parameterId": "x", "doubleValueSpec": {"minValue": 0, "maxValue": 1}}],
            **study,
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


@pytest.mark.slow
def test_no_trial_is_lost_or_repeated_when_the_service_is_killed(service: Service) -> None:
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


KILLED_AT = ("control.decided", "control.committed", "control.acted", "engine.sent")


@pytest.mark.slow
@pytest.mark.parametrize("place", KILLED_AT)
@pytest.mark.parametrize(("wide", "algorithm"), [(1, "default"), (4, "random")])
def test_the_points_are_the_same_however_often_it_was_killed(wide: int, algorithm: str, place: str) -> None:
    """One at a time, or if no point depends on another, the points are those of an undisturbed search."""
    trials = 24
    with running('[engines.local]\nsandbox = "none"\n') as service:
        starts = service.data.parent / "starts"
        starts.mkdir(mode=0o777)
        starts.chmod(0o777)
        study = {"algorithm": "RANDOM_SEARCH"} if algorithm == "random" else {}
        service.start()
        made = call(service, "POST", "hyperparameterTuningJobs", tuning_job(trials, wide, starts, **study))
        for done in (1, 5, 10):
            until(service, made["name"], lambda job, done=done: _done(job) >= done)
            service.kill()
            for _ in range(2):
                service.start(TURNOUT_KILL_AT=place, wait=False)
                service.wait_for_death()
            service.start()
        job = until(service, made["name"], ended)
        assert job["state"] == "JOB_STATE_SUCCEEDED", job
        assert [trial["id"] for trial in job["trials"]] == [str(number) for number in range(1, trials + 1)]
        assert {trial["state"] for trial in job["trials"]} == {"SUCCEEDED"}
        points = [
            {one["parameterId"]: one["value"] for one in trial["parameters"]} for trial in job["trials"]
        ]
        assert points == _undisturbed(int(made["name"].rpartition("/")[2]), trials, wide, algorithm)
        begun = Counter(path.name.partition(".")[0] for path in starts.iterdir())
        assert begun == {str(number): 1 for number in range(1, trials + 1)}


def _undisturbed(job_id: int, trials: int, wide: int, algorithm: str) -> list[Any]:
    search = Search(
        parameters=(Parameter("x", "float", 0, 1),),
        metrics=(Metric("score"),),
        algorithms=(Algorithm(algorithm, {"seed": job_id % (LARGEST_SEED + 1)}),),
        max_trials=trials,
        parallel=wide,
    )
    return run(search, lambda point: float(point["x"]), trials)


def test_a_search_of_another_project_is_not_visible(service: Service) -> None:
    made = call(service, "POST", "hyperparameterTuningJobs", tuning_job(2))
    job = until(service, made["name"], ended)
    path = made["name"].partition("us-central1/")[2]
    child = job["trials"][0]["customJob"].partition("us-central1/")[2]
    assert call(service, "GET", child)["state"] == "JOB_STATE_SUCCEEDED"
    headers = {"Authorization": f"Bearer {make_token(KEY, time.time())}"}
    url, body = f"{service.endpoint}/turnout/v1/keys", b'{"project": "theirs"}'
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as answer:
        key = json.load(answer)
    stranger = Key(key["id"], key["secret"], "theirs")
    for project in ("default", "theirs"):
        for method, what in (
            ("GET", path),
            ("GET", child),
            ("POST", f"{path}:cancel"),
            ("DELETE", path),
            ("DELETE", child),
        ):
            with pytest.raises(urllib.error.HTTPError) as refused:
                call(service, method, what, key=stranger, project=project)
            refused.value.close()
            assert refused.value.code in (403, 404)
    assert call(service, "GET", "hyperparameterTuningJobs", key=stranger, project="theirs") == {}
    assert call(service, "GET", "customJobs", key=stranger, project="theirs") == {}
    assert call(service, "GET", path) == job


@pytest.mark.slow
def test_a_search_whose_pool_is_gone_fails_and_says_so() -> None:
    asked = {
        "reward_attrs": [{"name": "acc", "mode": "max", "regex": "acc=(.+)"}],
        "search_params": [{"name": "x", "param_type": "continuous", "lower_bound": "0", "upper_bound": "1"}],
        "algo_configs": [
            {"name": "tpe_search", "params": [{"key": "num_samples", "value": "40", "type": "Integer"}]}
        ],
    }
    limits = {"type": "Float", "valid_type": "Range", "valid_range": ["0", "1"]}
    body = modelarts_job(
        "search",
        "echo acc=$x; sleep 0.2",
        algorithm={
            "parameters": [{"name": "x", "value": "0.5", "constraint": limits}],
            "policies": {"auto_search": asked},
        },
        spec={"resource": {"node_count": 1, "pool_id": "pool1"}},
    )
    with running("[pools.pool1]\n") as service:
        service.start()
        made = send(service, "POST", "/v2/default/training-jobs", json.dumps(body))
        assert made.status_code == 201, made.text
        path = f"/v2/default/training-jobs/{made.json()['metadata']['id']}"
        deadline = time.monotonic() + 60
        while "TERMINATED" not in _shown(service, path):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        service.terminate()
        service.config.write_text("")
        service.start()
        job = service.wait("search")
        assert job["state"] == "failed", job
        assert "pool1" in job["message"]
        assert send(service, "GET", path).json()["status"]["phase"] == "Abnormal"
        assert set(_shown(service, path)) <= {"TERMINATED", "ERROR"}


def _shown(service: Service, path: str) -> list[str]:
    """The states of a search's trials."""
    table = send(service, "GET", f"{path}/autosearch-trials").json()["items"]
    return [dict(zip(table["header"], row, strict=True))["status"] for row in table["data"]]


def _done(job: Any) -> int:
    return sum(trial["state"] == "SUCCEEDED" for trial in job.get("trials", ()))
