"""The requests that the connections of a flood repeat, and the jobs that they need."""

import json
import time
from typing import Any, NamedTuple

from bench.client import KEY, Requests
from bench.service import Service
from turnout.access import Key, make_session_token, make_token

LOG_SETTINGS = "[limits]\nlog_bytes = 400_000_000\n"
"""So small that a growing log is soon cut, and its lines have to be counted again."""
_WARM_UP = 2.0
_LOGS = 8
_NEWLINES = 300_000_000
_METRICS = "seq 3000000 | sed 's/^/TURNOUT_METRIC score=/'"
_TAKEN_IN_SECONDS = 60
_TRAINING_JOBS = "training-jobs"


class Flood(NamedTuple):
    what: str
    connections: int
    requests: list[bytes]
    warm_up: float = _WARM_UP
    """Seconds between the start of the flood and the first measurement."""
    until_ended: bytes = b""
    """A long poll for a job of the flood. Memory is watched until it returns."""
    afterwards: bytes = b""
    """The request that stops its job."""


def bodies(service: Service, key: Key, aside: bool) -> Flood:
    """Bodies as long as ModelArts allows, without a key; some name a key but are signed with a wrong secret."""
    large = _body(12_000_000)
    path = f"/v2/{key.project}/{_TRAINING_JOBS}"
    made_up = Key(key.id, "not-the-secret", key.project)
    strangers = [
        _request("POST", path, "", large),
        _request("POST", path, "X-Auth-Token: any", large),
        _vertex("Authorization: Bearer any", key.project, "customJobs", large),
        Requests(service.port, made_up).call("CreateJob", {"Name": "x" * 9_000_000}),
    ]
    return Flood("12 MB bodies, no key", 200, strangers)


def known_bodies(service: Service, key: Key, aside: bool) -> Flood:
    return Flood(
        "9 MB bodies with a key", 40, [_vertex(_bearer(key), key.project, "customJobs", _body(9_000_000))]
    )


def logs(service: Service, key: Key, aside: bool) -> Flood:
    """Reads logs that nobody has read before, and one that grows and is cut, so that counts are soon outdated."""
    token = f"X-Auth-Token: {make_session_token(key, key.project, time.time())}"
    phase = "aside" if aside else "direct"
    print_lines = f"yes '' | head -c {_NEWLINES}"
    jobs = [_train(service, key, token, f"{phase}-{number}", print_lines) for number in range(_LOGS)]
    for job in jobs:
        service.line.ask(_wait(key, job))
    endless = f"{print_lines}; while :; do yes '' | head -c 10000000; sleep 0.1; done"
    growing = _train(service, key, token, f"{phase}-growing", endless)
    paths = [f"/v2/{key.project}/{_TRAINING_JOBS}/{job}" for job in [*jobs, growing]]
    asked = [f"{path}/logs/worker-0?lines=50" for path in paths]
    asked += [f"{path}/tasks/worker-0/logs/preview" for path in paths]
    end = json.dumps({"action_type": "terminate"}).encode()
    return Flood(
        "scans of logs",
        len(asked),
        [_request("GET", one, token) for one in asked],
        afterwards=_request("POST", f"{paths[-1]}/actions", token, end),
    )


def filters(service: Service, key: Key, aside: bool) -> Flood:
    script = "seq 400000 | sed 's/^/a line of some length with the number /'"
    job = _create(service, key, "customJobs", {"displayName": "x", "jobSpec": _spec(script)})
    service.line.ask(_wait(key, job))
    conditions = "".join(f' AND NOT textPayload:"nothing {number}"' for number in range(97))
    asked = {
        "resourceNames": [f"projects/{key.project}"],
        "filter": f'resource.labels.job_id="{job}"{conditions} AND textPayload:"nowhere"',
    }
    request = _request("POST", "/v2/entries:list", _bearer(key), json.dumps(asked).encode())
    return Flood("99 conditions", 16, [request])


def metrics(service: Service, key: Key, aside: bool) -> Flood:
    """A trial prints metrics during the measurement. For the floor, a job prints them and nobody reads it."""
    if aside:
        kind, document = "customJobs", {"displayName": "x", "jobSpec": _spec(_METRICS)}
    else:
        kind, document = "hyperparameterTuningJobs", _tuning(_METRICS, 1)
    job = _create(service, key, kind, document)
    path = f"/v1/projects/{key.project}/locations/us-central1/{kind}/{job}"
    request = _request("GET", path, _bearer(key))
    return Flood("3 M metrics", 8, [request], warm_up=0, until_ended=_wait(key, job, _TAKEN_IN_SECONDS))


def searches(service: Service, key: Key, aside: bool) -> Flood:
    body = json.dumps(_tuning("echo TURNOUT_METRIC score=1; sleep 60", 2)).encode()
    return Flood("searches", 4, [_vertex(_bearer(key), key.project, "hyperparameterTuningJobs", body)])


def new_key(service: Service, project: str) -> Key:
    """Creates an ordinary key of this project."""
    body = json.dumps({"project": project}).encode()
    made = _json(service, _request("POST", "/turnout/v1/keys", _bearer(KEY), body))
    return Key(made["id"], made["secret"], project)


def _train(service: Service, key: Key, token: str, name: str, command: str) -> str:
    document = {
        "kind": "job",
        "metadata": {"name": name},
        "algorithm": {"engine": {"image_url": "x/y:1"}, "command": command},
        "spec": {"resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1}},
    }
    body = json.dumps(document).encode()
    made = _json(service, _request("POST", f"/v2/{key.project}/{_TRAINING_JOBS}", token, body))
    return str(made["metadata"]["id"])


def _tuning(script: str, count: int) -> dict[str, Any]:
    study = {
        "metrics": [{"metricId": "score", "goal": "MAXIMIZE"}],
        "parameters": [{"parameterId": "x", "doubleValueSpec": {"minValue": 0, "maxValue": 1}}],
    }
    return {
        "displayName": "bench",
        "studySpec": study,
        "maxTrialCount": count,
        "parallelTrialCount": 1,
        "trialJobSpec": _spec(script),
    }


def _spec(script: str) -> dict[str, Any]:
    pool = {
        "machineSpec": {"machineType": "n4-highcpu-4"},
        "replicaCount": 1,
        "containerSpec": {"imageUri": "python:3.11", "command": ["sh", "-c", script]},
    }
    return {"workerPoolSpecs": [pool]}


def _create(service: Service, key: Key, kind: str, document: dict[str, Any]) -> str:
    created = _json(service, _vertex(_bearer(key), key.project, kind, json.dumps(document).encode()))
    return str(created["name"]).rpartition("/")[2]


def _wait(key: Key, job: str, seconds: int = 300) -> bytes:
    return _request("GET", f"/turnout/v1/jobs/{job}/wait?for=ended&timeout={seconds}", _bearer(key))


def _vertex(header: str, project: str, kind: str, body: bytes) -> bytes:
    return _request("POST", f"/v1/projects/{project}/locations/us-central1/{kind}", header, body)


def _body(size: int) -> bytes:
    return json.dumps({"displayName": "x" * size}).encode()


def _bearer(key: Key) -> str:
    return f"Authorization: Bearer {make_token(key, time.time())}"


def _request(method: str, path: str, header: str, body: bytes = b"") -> bytes:
    more = f"{header}\r\n" if header else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _json(service: Service, request: bytes) -> Any:
    return json.loads(service.line.ask(request))
