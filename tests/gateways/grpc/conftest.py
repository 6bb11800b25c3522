"""The real process in front of a REST service that is made up."""

import subprocess
from collections.abc import Iterator
from typing import Any

import grpc
import msgspec
import pytest
from google.cloud.aiplatform_v1 import JobServiceClient
from google.cloud.aiplatform_v1.services.job_service.transports import JobServiceGrpcTransport

from tests.doors.grpc.stub import Stub, stub
from tests.running import free_port
from turnout.doors.grpc import Orders
from turnout.doors.grpc.process import COMMAND

UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
"""As Google's clients set it when they open a channel themselves."""


@pytest.fixture(scope="module")
def rest() -> Iterator[Stub]:
    with stub() as one:
        yield one


@pytest.fixture(autouse=True)
def fresh(request: pytest.FixtureRequest) -> None:
    """No test sees what the one before asked for or was told."""
    if "rest" in request.fixturenames:
        one: Stub = request.getfixturevalue("rest")
        one.asked.clear()
        one.say({})
        one.gate.set()


@pytest.fixture(scope="module")
def port(rest: Stub) -> Iterator[int]:
    """Where the process listens."""
    at = free_port()
    with start(Orders("127.0.0.1", at, f"http://127.0.0.1:{rest.port}")) as process:
        yield at
    assert process.returncode == 0, "it goes when its input ends"


@pytest.fixture(scope="module")
def channel(port: int) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{port}", UNLIMITED) as one:
        grpc.channel_ready_future(one).result(30)
        yield one


@pytest.fixture(scope="module")
def client(channel: grpc.Channel) -> Any:
    return JobServiceClient(transport=JobServiceGrpcTransport(channel=channel))


def start(orders: Orders) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE)
    assert process.stdin
    process.stdin.write(msgspec.json.encode(orders) + b"\n")
    process.stdin.flush()
    return process
