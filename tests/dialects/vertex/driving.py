"""Google's own clients, and plain HTTP, at a service."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple

from google.auth.credentials import Credentials
from google.cloud import aiplatform_v1
from google.oauth2.credentials import Credentials as Bearer

from tests.dialects.vertex import jobs
from tests.running import KEY, Service
from turnout.access import Key, make_token

PROJECT = "p1"
LOCATION = "us-central1"
ENDED = ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")


class Answer(NamedTuple):
    status: int
    body: Any

    @property
    def error(self) -> tuple[int, str, str]:
        told = self.body["error"]
        assert told["code"] == self.status
        return self.status, told["status"], told["message"]


class Cloud:
    def __init__(self, service: Service, project: str = PROJECT, key: Key = KEY) -> None:
        self.service = service
        self.key = key
        self.project = project
        self.parent = f"projects/{project}/locations/{LOCATION}"

    def client(self, credentials: Credentials | None = None) -> aiplatform_v1.JobServiceClient:
        return aiplatform_v1.JobServiceClient(
            transport="rest",
            credentials=credentials or Bearer(token=self.token()),
            client_options={"api_endpoint": self.service.endpoint},
        )

    def token(self) -> str:
        return make_token(self.key, time.time())

    def send(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """`path` is whole, or one below the project's location in v1."""
        whole = path if path.startswith("/") else f"/v1/{self.parent}/{path}"
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"Authorization": f"Bearer {self.token()}"} if headers is None else dict(headers)
        request = urllib.request.Request(self.service.endpoint + whole, data, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return Answer(answer.status, json.load(answer))
        except urllib.error.HTTPError as error:
            return Answer(error.code, json.load(error))

    def create(self, *pools: jobs.Document, **fields: Any) -> Any:
        answer = self.send("POST", "customJobs", jobs.job(*pools, **fields))
        assert answer.status == 200, answer.body
        return answer.body

    def shell(self, script: str, **fields: Any) -> Any:
        """A job that runs a line of shell."""
        return self.create(jobs.container(command=["/bin/sh", "-c", script]), **fields)

    def get(self, name: str) -> Any:
        return self.send("GET", f"/v1/{name}").body

    def wait(self, name: str, *states: str) -> Any:
        """The job once it is in one of the states, as the service tells without being asked again and again."""
        job_id = name.rpartition("/")[2]
        wanted = states or ENDED
        if not states:
            self.send("GET", f"/turnout/v1/jobs/{job_id}/wait?timeout=30")
        deadline = time.monotonic() + 30
        while (job := self.get(name))["state"] not in wanted:
            assert time.monotonic() < deadline, job
            time.sleep(0.02)
        return job

    def entries(self, job: Any, more: str = "", **fields: Any) -> Any:
        """What Cloud Logging has of a job."""
        job_id = job["name"].rpartition("/")[2]
        asked = {
            "resourceNames": [f"projects/{self.project}"],
            "filter": f'resource.type="ml_job" AND resource.labels.job_id="{job_id}"{more}',
            "orderBy": "timestamp asc",
            "pageSize": 1000,
        }
        return self.send("POST", "/v2/entries:list", asked | fields).body
