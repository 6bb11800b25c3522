"""Clients that request much data and do not read it."""

import contextlib
import http.client
import socket
import time
from collections.abc import Iterator

import psutil
import pytest

from tests.running import KEY, Service, running
from tests.web.memory import resident
from turnout.access import make_token

READERS = [40, pytest.param(200, marks=pytest.mark.slow)]
"""Each requests 200 MB of log."""
READ_AHEAD = 500 << 10
"""The allowed growth of the service's memory for each client."""
SPARE = 10 << 20
LOG = "import sys; line = 'x' * 7999 + '\\n'; [sys.stdout.write(line) for _ in range(25_000)]"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running() as one:
        yield one.start()


def head(path: str) -> bytes:
    token = make_token(KEY, time.time())
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


def grown(service: Service, path: str, readers: int) -> int:
    """The growth when the service has stopped sending to all clients."""
    before, most, still = resident(service), 0, 0
    assert service.process
    process = psutil.Process(service.process.pid)
    with contextlib.ExitStack() as opened:
        for _ in range(readers):
            reader = socket.socket()
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect(("127.0.0.1", service.port))
            opened.enter_context(reader)
            reader.sendall(head(path))
        while still < 5:
            busy = sum(process.cpu_times()[:2])
            time.sleep(0.2)
            most = max(most, resident(service) - before)
            still = still + 1 if sum(process.cpu_times()[:2]) - busy < 0.05 else 0
        assert service.native("/whoami")["root"]
    return most


@pytest.mark.parametrize("readers", READERS)
def test_slow_readers_of_a_log_take_little_memory(service: Service, readers: int) -> None:
    name = f"talker-{readers}"
    service.create(name, "python3", "-c", LOG)
    assert service.wait(name)["state"] == "succeeded"
    most = SPARE + readers * READ_AHEAD
    assert grown(service, f"/turnout/v1/jobs/{name}/logs", readers) < most
    assert grown(service, f"/turnout/v1/jobs/{name}/logs?follow=true", readers) < most


@pytest.mark.parametrize("readers", READERS)
def test_slow_readers_of_an_object_take_little_memory(service: Service, readers: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    headers = {"Authorization": f"Bearer {make_token(KEY, time.time())}", "Content-Type": "application/json"}
    connection.request("POST", "/storage/v1/b", b'{"name": "slow-readers"}', headers)
    assert connection.getresponse().read()
    connection.request("PUT", "/turnout/v1/object?url=gs://slow-readers/large", bytes(32 << 20), headers)
    assert connection.getresponse().status == 200
    connection.close()
    most = SPARE + readers * READ_AHEAD
    assert grown(service, "/turnout/v1/object?url=gs://slow-readers/large", readers) < most


def test_a_slow_reader_gets_everything(service: Service) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    headers = {"Authorization": f"Bearer {make_token(KEY, time.time())}"}
    connection.request("GET", "/turnout/v1/object?url=gs://slow-readers/large", headers=headers)
    answer = connection.getresponse()
    count = 0
    while piece := answer.read(1 << 18):
        count += len(piece)
    connection.close()
    assert count == 32 << 20
