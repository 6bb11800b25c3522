"""Plain HTTP at the native API of a service, and small jobs of each API."""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.dialects.native import schema
from tests.dialects.vertex import jobs as vertex_jobs
from tests.running import KEY, Service
from turnout.access import Key, make_token

Document = dict[str, Any]


class Answer(NamedTuple):
    status: int
    body: Any

    @property
    def error(self) -> str:
        return self.body["error"]["message"]


class Client:
    """Calls `/turnout/v1` with a key."""

    def __init__(self, service: Service, key: Key = KEY) -> None:
        self.service = service
        self.key = key

    def send(self, method: str, path: str, body: Any = None, **query: str) -> Answer:
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        try:
            with self.open(method, path, data, **query) as response:
                answer = Answer(response.status, json.load(response))
        except urllib.error.HTTPError as error:
            answer = Answer(error.code, json.load(error))
        schema.check_reply(method, path, *answer)
        return answer

    def get(self, path: str, **query: str) -> Any:
        answer = self.send("GET", path, **query)
        assert answer.status == 200, answer.body
        return answer.body

    def post(self, path: str, body: Any = None, **query: str) -> Any:
        answer = self.send("POST", path, b"" if body is None else body, **query)
        assert answer.status in (200, 201), answer.body
        return answer.body

    def names(self, **query: str) -> list[str]:
        return [job["name"] for job in self.get("/jobs", **query)["jobs"]]

    def open(
        self, method: str, path: str, data: bytes | None = None, last_event_id: str = "", **query: str
    ) -> Any:
        url = f"{self.service.endpoint}/turnout/v1{path}"
        if query:
            url += "?" + urllib.parse.urlencode(query)
        headers = {"Authorization": f"Bearer {make_token(self.key, time.time())}"}
        if last_event_id:
            headers["Last-Event-ID"] = last_event_id
        return urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=60)

    def other(self, project: str) -> "Client":
        """A client with a new key of that project."""
        made = self.post("/keys", {"project": project})
        return Client(self.service, Key(made["id"], made["secret"], project))


class Event(NamedTuple):
    id: str
    kind: str
    data: Any


def events(response: Any) -> Iterator[Event]:
    """The server-sent events of a response, as they come."""
    fields: dict[str, str] = {}
    for line in response:
        text = line.decode().rstrip("\n")
        if not text:
            if "data" in fields:
                yield Event(fields.get("id", ""), fields.get("event", "message"), json.loads(fields["data"]))
            fields = {}
        elif not text.startswith(":"):
            name, _, value = text.partition(": ")
            fields[name] = value


def vertex_job(name: str, script: str = "true", gpus: int = 0, **fields: Any) -> Document:
    pool = vertex_jobs.container(command=["/bin/sh", "-c", script])
    if gpus:
        pool["machineSpec"] = {
            "machineType": "n1-standard-4",
            "acceleratorType": "NVIDIA_TESLA_T4",
            "acceleratorCount": gpus,
        }
    return vertex_jobs.job(pool, displayName=name, **fields)


def create_vertex(
    client: Client, name: str, script: str = "true", *, project: str = "default", gpus: int = 0, **fields: Any
) -> str:
    """The id of the new job."""
    request = urllib.request.Request(
        f"{client.service.endpoint}/v1/projects/{project}/locations/us-central1/customJobs",
        json.dumps(vertex_job(name, script, gpus, **fields)).encode(),
        {"Authorization": f"Bearer {make_token(client.key, time.time())}"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["name"].rpartition("/")[2]
