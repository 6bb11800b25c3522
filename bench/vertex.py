"""Google's own SDK: from `CustomJob.submit()` to the first line that the program prints."""

import json
import logging
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from bench import clock
from bench.client import KEY
from bench.floor import Floor
from bench.service import Service, running
from bench.table import Row, Table
from turnout.access import make_token
from turnout.job import Attempt

CLOUD_SECONDS = {"the cloud, shortest": 173, "the cloud, longest": 253}
"""Published times of Vertex AI: four runs of one author, until the first line of the container."""
POOL = {
    "machine_spec": {"machine_type": "n1-standard-4"},
    "replica_count": 1,
    "container_spec": {"image_uri": "python:3.11", "command": list(clock.DATE)},
}


def vertex(table: Table, directory: Path, floor: Floor) -> None:
    count = 10 if table.quick else 50
    with running(directory / "service") as service:
        step = table.steps("vertex", count * 2)
        submit, post = _sdk(service), _post(service)
        submit()
        by_sdk, by_hand = list[float](), list[float]()
        for _ in range(count):
            for measure, times in ((submit, by_sdk), (post, by_hand)):
                times.append(_start(service, measure))
                step()
    cloud = {name: seconds * 1e3 for name, seconds in CLOUD_SECONDS.items()}
    what = "CustomJob.submit() → first line (the cloud: 2.9 to 4.2 min)"
    table.add(Row("vertex", what, statistics.median(by_sdk), "ms", detail=cloud))
    what = "the same request without the SDK"
    table.add(Row("vertex-rest", what, statistics.median(by_hand), "ms"))


def _start(service: Service, create: Callable[[], int]) -> float:
    """Milliseconds from the call until the time that the program prints."""
    before = time.time_ns()
    job = create()
    state = service.wait(str(job))["state"]
    assert state == "succeeded", state
    printed = service.paths.replica(Attempt(job, 1), "workerpool0-0") / "stdout"
    return (clock.read(printed) - before) / 1e6


def _sdk(service: Service) -> Callable[[], int]:
    from google.cloud import aiplatform
    from google.oauth2.credentials import Credentials

    # Each of its modules has a logger with a level of its own.
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("google.cloud.aiplatform"):
            logging.getLogger(name).setLevel(logging.WARNING)
    aiplatform.init(
        api_endpoint=f"http://127.0.0.1:{service.port}",
        api_transport="rest",
        project="default",
        location="us-central1",
        staging_bucket="gs://stage",
        credentials=Credentials(token=make_token(KEY, time.time())),
    )

    def submit() -> int:
        job = aiplatform.CustomJob("bench", [POOL])
        job.submit()
        return int(job.name)

    return submit


def _post(service: Service) -> Callable[[], int]:
    body = json.dumps({"display_name": "bench", "job_spec": {"worker_pool_specs": [POOL]}}).encode()
    head = (
        f"POST /v1/projects/default/locations/us-central1/customJobs HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {make_token(KEY, time.time())}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    return lambda: int(json.loads(service.line.ask(head + body))["name"].rpartition("/")[2])
