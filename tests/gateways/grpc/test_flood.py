"""Callers who send much: what the process keeps of it, and who is served meanwhile."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import psutil
import pytest
from google.cloud.aiplatform_v1 import CreateCustomJobRequest, GetCustomJobRequest

from tests.gateways.grpc.conftest import UNLIMITED, start
from tests.gateways.grpc.stub import Stub
from turnout.gateways.grpc import GatewaySetup

CALLS = 60
MOST = 40 << 20
SERVICE = "/google.cloud.aiplatform.v1.JobService/"
PLACE = "projects/p/locations/l"
OWN = [*UNLIMITED, ("grpc.use_local_subchannel_pool", 1)]
"""Each channel has a connection of its own."""


class Gateway:
    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.process = psutil.Process(pid)
        self._before = self.resident
        self.most = 0

    @property
    def resident(self) -> int:
        return self.process.memory_info().rss

    @property
    def growth(self) -> int:
        self.most = max(self.most, self.resident - self._before)
        return self.resident - self._before

    def call(self, method: str, message: bytes, timeout: float = 60) -> str:
        with grpc.insecure_channel(f"127.0.0.1:{self.port}", OWN) as channel:
            try:
                channel.unary_unary(SERVICE + method)(message, timeout=timeout)
            except grpc.RpcError as error:
                answer: Any = error
                return answer.code().name
        return "OK"

    def call_often(self, method: str, message: bytes) -> set[str]:
        """What was answered. The most that the process grew by meanwhile is noted."""
        with ThreadPoolExecutor(CALLS) as pool:
            answers = [pool.submit(self.call, method, message) for _ in range(CALLS)]
            while not all(one.done() for one in answers):
                assert self.growth is not None
                time.sleep(0.01)
        return {one.result() for one in answers}


@pytest.fixture
def gateway(rest: Stub) -> Iterator[Gateway]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        setup = GatewaySetup(listener.fileno(), "127.0.0.1", f"http://127.0.0.1:{rest.port}")
        with start(setup) as process:
            port = listener.getsockname()[1]
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                grpc.channel_ready_future(channel).result(30)
            yield Gateway(port, process.pid)
            rest.known = True


def test_messages_of_strangers_are_not_read(gateway: Gateway, rest: Stub):
    rest.known = False
    rest.fail(403, "PERMISSION_DENIED", "no token")
    assert gateway.call_often("CreateCustomJob", b"x" * (9 << 20)) == {"PERMISSION_DENIED"}
    assert gateway.most < MOST / 2
    assert {one.body for one in rest.asked} == {None}


def large() -> bytes:
    return CreateCustomJobRequest.serialize(
        CreateCustomJobRequest(parent=PLACE, custom_job={"display_name": "x" * (9 << 20)})
    )


def test_large_messages_of_known_callers_take_turns_and_their_memory_goes_back(gateway: Gateway):
    gateway.call("GetCustomJob", b"")
    assert gateway.call_often("CreateCustomJob", large()) == {"OK"}
    assert gateway.most < 4 * MOST
    deadline = time.monotonic() + 30
    while gateway.growth > MOST / 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert gateway.growth <= MOST / 2


def test_a_message_of_very_many_values_is_refused(gateway: Gateway):
    pool = {"container_spec": {"args": [""] * 4_000_000}}
    message = CreateCustomJobRequest.serialize(
        CreateCustomJobRequest(
            parent=PLACE, custom_job={"display_name": "x", "job_spec": {"worker_pool_specs": [pool]}}
        )
    )
    assert gateway.call("CreateCustomJob", message) == "INVALID_ARGUMENT"


@pytest.mark.slow
def test_a_slow_sender_is_interrupted_when_others_wait(gateway: Gateway):
    """More of them than messages that are received at once; each sends all but the message."""
    over = threading.Event()

    def never() -> Iterator[bytes]:
        over.wait(60)
        yield b""

    channels = [grpc.insecure_channel(f"127.0.0.1:{gateway.port}", OWN) for _ in range(8)]
    slow: list[Any] = [
        one.stream_unary(SERVICE + "GetCustomJob").future(never(), timeout=60) for one in channels
    ]
    time.sleep(0.5)
    message = GetCustomJobRequest.serialize(GetCustomJobRequest(name=f"{PLACE}/customJobs/1"))
    assert gateway.call("GetCustomJob", message) == "OK"
    assert any(one.done() and one.code() == grpc.StatusCode.RESOURCE_EXHAUSTED for one in slow)
    over.set()
    for one in channels:
        one.close()


def test_endless_connections_do_not_keep_other_clients_out(gateway: Gateway):
    message = GetCustomJobRequest.serialize(GetCustomJobRequest(name=f"{PLACE}/customJobs/1"))
    with contextlib.ExitStack() as silent:
        for _ in range(700):
            silent.enter_context(socket.create_connection(("127.0.0.1", gateway.port)))
        assert gateway.call("GetCustomJob", message) == "OK"
        assert gateway.process.num_fds() < 1800
        assert gateway.growth < MOST
