"""Without authentication, what looks like a request of a job has no more rights than one."""

import http.client
import json
import time
from collections.abc import Iterator

import pytest

from tests.running import Service, running

FOREIGN = {"Host": "page.example"}
"""As a web page has it whose name resolves to this machine."""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running() as one:
        one.start("--no-auth")
        yield one


def ask(service: Service, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    try:
        connection.request(method, path, body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("name", ["AccessKeyId", "AWSAccessKeyId", "q-ak", "X-Amz-Credential"])
def test_naming_a_key_of_a_job_does_not_make_a_stranger_the_operator(service: Service, name: str):
    assert ask(service, "GET", "/storage/v1/b", FOREIGN) == 403
    assert ask(service, "GET", f"/storage/v1/b?{name}=JOB1A1", FOREIGN) in (400, 403)
    made = json.dumps({"name": f"by-a-stranger-{int(time.time())}"}).encode()
    assert ask(service, "POST", f"/storage/v1/b?{name}=JOB1A1", FOREIGN, made) in (400, 403)
    assert ask(service, "GET", "/storage/v1/b", {}) == 200


@pytest.mark.parametrize(
    "authorization",
    [
        "Bearer tj1.",
        "Bearer  tj1.1.1.00",
        "bearer tj1.\tx",
        "AWS JOB1A1:x",
        "q-ak=JOB1A1",
        "Bearer tj1.1.1." + "0" * 64,
    ],
)
def test_a_wrong_key_of_a_job_does_not_make_a_stranger_the_operator(service: Service, authorization: str):
    headers = FOREIGN | {"Authorization": authorization}
    assert ask(service, "GET", "/storage/v1/b", headers) in (400, 401, 403)
