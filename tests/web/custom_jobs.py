"""Custom jobs of Vertex, created and read by plain HTTP."""

import json
import time
import urllib.request
from typing import Any

from tests.running import KEY, Service
from turnout.access import Key, make_token


def vertex(service: Service, method: str, path: str, body: Any = None, key: Key = KEY) -> Any:
    headers = {"Authorization": f"Bearer {make_token(key, time.time())}"}
    data = json.dumps(body).encode() if body is not None else None
    address = f"{service.endpoint}/v1/{path}"
    with urllib.request.urlopen(urllib.request.Request(address, data, headers, method=method)) as answer:
        return json.load(answer)


def create(service: Service, program: str, **fields: bool) -> Any:
    container = {"imageUri": "python:3", "command": ["python3", "-c", program]}
    pool = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1, "containerSpec": container}
    body = {"displayName": "page", "jobSpec": {"workerPoolSpecs": [pool], **fields}}
    job = vertex(service, "POST", "projects/default/locations/us-central1/customJobs", body)
    service.native(f"/jobs/{job['name'].rpartition('/')[2]}/wait?for=started&timeout=30")
    return job
