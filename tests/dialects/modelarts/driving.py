"""Huawei's own client, connected to a service under test."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl

import httpx
import huaweicloudsdkmodelarts.v1 as sdk
import pytest
from huaweicloudsdkcore.auth.credentials import BasicCredentials
from huaweicloudsdkcore.exceptions.exceptions import ClientRequestException
from huaweicloudsdkcore.http.http_config import HttpConfig
from huaweicloudsdkcore.sdk_request import SdkRequest
from huaweicloudsdkcore.signer.signer import Signer

from tests.running import KEY, Service
from turnout.access import Key, make_token


class Cloud:
    """Each call is one method of the SDK: `cloud("show_training_job_details", training_job_id=…)`."""

    def __init__(self, service: Service, key: Key = KEY, project: str = "default", token: str = "") -> None:
        credentials = BasicCredentials(key.id, key.secret, project)
        if token:
            credentials = credentials.with_security_token(token)
        self.client: Any = (
            sdk.ModelArtsClient.new_builder()
            .with_http_config(HttpConfig.get_default_config())
            .with_credentials(credentials)
            .with_endpoint(service.endpoint)
            .build()
        )

    def __call__(self, method: str, **fields: Any) -> Any:
        """A `body` may be a plain dictionary: it is sent as it is, nulls too."""
        kind = "".join(word.capitalize() for word in method.split("_")) + "Request"
        return getattr(self.client, method)(getattr(sdk, kind)(**fields))

    def create(self, name: str, command: str = "true", **parts: Any) -> Any:
        return self("create_training_job", body=job(name, command, **parts))

    def details(self, job_id: str) -> Any:
        return self("show_training_job_details", training_job_id=job_id)

    def log(self, job_id: str, task: str = "worker-0") -> str:
        """All that it has said so far."""
        said = self("show_training_job_logs_preview", training_job_id=job_id, task_id=task)
        return said.content or ""

    def wait_for(self, job_id: str, text: str, task: str = "worker-0", seconds: float = 60) -> None:
        """Until the task's log has the text."""
        deadline = time.monotonic() + seconds
        while text not in self.log(job_id, task):
            phase = self.details(job_id).status.phase
            assert phase in ("Pending", "Running"), self.log(job_id, task)
            assert time.monotonic() < deadline, self.log(job_id, task)
            time.sleep(0.1)

    def events(self, job_id: str) -> list[str]:
        """What happened, the first thing first."""
        asked = {"training_job_id": job_id, "limit": 100, "order": "asc"}
        return [event.message for event in self("list_training_job_events", **asked).events]


def job(name: str, command: str = "true", **parts: Any) -> dict[str, Any]:
    """A job of a custom image; `metadata`, `algorithm` and `spec` are added to what it has."""
    return {
        "kind": "job",
        "metadata": {"name": name} | parts.get("metadata", {}),
        "algorithm": {"engine": {"image_url": "tests/anything:1"}, "command": command}
        | parts.get("algorithm", {}),
        "spec": {"resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1}} | parts.get("spec", {}),
    }


@contextmanager
def refused(code: str, status: int = 400, match: str = "") -> Iterator[None]:
    """The SDK raises what the server said: the code, the status, and a request id."""
    with pytest.raises(ClientRequestException) as caught:
        yield
    error = caught.value
    assert (error.error_code, error.status_code) == (code, status), error.error_msg
    assert error.request_id
    assert match in (error.error_msg or "")


def put(service: Service, url: str, content: str | bytes) -> None:
    """An object in a bucket of the default project."""
    headers = {"Authorization": f"Bearer {make_token(KEY, time.time())}"}
    answer = httpx.put(
        f"{service.endpoint}/turnout/v1/object",
        params={"url": url},
        content=content.encode() if isinstance(content, str) else content,
        headers=headers,
        trust_env=False,
    )
    assert answer.status_code < 300, answer.text


def get(service: Service, url: str) -> str:
    headers = {"Authorization": f"Bearer {make_token(KEY, time.time())}"}
    where = f"{service.endpoint}/turnout/v1/object"
    answer = httpx.get(where, params={"url": url}, headers=headers, trust_env=False)
    assert answer.status_code == 200, answer.text
    return answer.text


def send(
    service: Service, method: str, path: str, body: str = "", date: str = "", sent: str | None = None
) -> httpx.Response:
    """Signed by Huawei's own signer. `path` is sent as it is, and `sent` instead of the body that was signed."""
    headers = {"Content-Type": "application/json"} | ({"X-Sdk-Date": date} if date else {})
    host = f"127.0.0.1:{service.port}"
    bare, _, query = path.partition("?")
    pairs: list[tuple[str, object]] = list(parse_qsl(query))
    request = SdkRequest(method, "http", host, bare, query_params=pairs, header_params=headers, body=body)
    signed = Signer(BasicCredentials(KEY.id, KEY.secret, "default")).sign(request)
    content = (body if sent is None else sent).encode()
    with httpx.Client(trust_env=False) as client:
        return client.request(
            method, f"http://{host}{path}", headers=signed.header_params, content=content, timeout=30
        )
