"""The real process in front of a REST service that is made up."""

import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import grpc
import msgspec
import pytest
from google.cloud.aiplatform_v1 import JobServiceClient
from google.cloud.aiplatform_v1.services.job_service.transports import JobServiceGrpcTransport

from tests.gateways.grpc.stub import Stub, stub
from turnout.gateways.grpc import GatewaySetup
from turnout.gateways.grpc.process import PROGRAM

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
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        start(GatewaySetup(listener.fileno(), "127.0.0.1", f"http://127.0.0.1:{rest.port}")) as process,
    ):
        yield listener.getsockname()[1]
    assert process.returncode == 0, "it goes when its input ends"


@pytest.fixture(scope="module")
def channel(port: int) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{port}", UNLIMITED) as one:
        grpc.channel_ready_future(one).result(30)
        yield one


@pytest.fixture(scope="module")
def client(channel: grpc.Channel) -> Any:
    return JobServiceClient(transport=JobServiceGrpcTransport(channel=channel))


def start(setup: GatewaySetup) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(PROGRAM.command, stdin=subprocess.PIPE, pass_fds=[setup.listener])
    assert process.stdin
    process.stdin.write(msgspec.json.encode(setup) + b"\n")
    process.stdin.flush()
    return process
