"""What the service logs when it fails while it answers a job: no key of the job."""

import asyncio
import http.client
import socket

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from turnout.access import Key, Keys
from turnout.access.job_keys import JobKeys
from turnout.gateways.jobs import metadata
from turnout.gateways.jobs.app import PREFIX, JobGateway
from turnout.job import Attempt
from turnout.server import http_config
from turnout.web.protocol import LimitedProtocol

ATTEMPT = Attempt(1, 1)


async def fail(scope: Scope, receive: Receive, send: Send) -> None:
    raise RuntimeError("it failed")


def entered(gateway: JobGateway) -> ASGIApp:
    """As the service enters it at its own port."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        inner = gateway.enter(scope)
        assert inner is not None
        await gateway(inner, receive, send)

    return app


async def test_no_key_is_in_the_log_of_a_failure(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    jobs = JobKeys(Keys(Key("AKIDroot", "root's secret", "default", root=True)), b"x" * 32)
    jobs.project = lambda attempt: "default"
    key = jobs.make(ATTEMPT)
    monkeypatch.setattr(metadata, "answer", lambda *_: fail)
    gateway = JobGateway(jobs, fail, lambda attempt: fail)
    requests = (
        (f"{PREFIX}{key.address}/computeMetadata/v1/instance/service-accounts/default/token", {}),
        ("/storage/v1/b/data/o/x", {"Authorization": f"Bearer {key.token}"}),
        (
            f"/data/x?X-Amz-Credential={key.id}%2F20260101&X-Amz-Security-Token={key.session}",
            {"X-Amz-Security-Token": key.session},
        ),
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = http_config(entered(gateway), LimitedProtocol)
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve([listener]))
        port = listener.getsockname()[1]
        for path, headers in requests:
            assert await asyncio.to_thread(status, port, path, headers) == 500
        server.should_exit = True
        await task
    assert caplog.text.count("Traceback") >= len(requests)
    parts = (key.secret, key.session, key.token.rpartition(".")[2], key.address.rpartition(".")[2])
    assert not [part for part in parts if part in caplog.text]


def status(port: int, path: str, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()
