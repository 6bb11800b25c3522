"""Unauthenticated clients and malicious requests."""

import json
import socket
import time
from collections.abc import Iterator

import pytest

from tests.running import KEY, Service, running
from turnout.access import make_token


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running() as one:
        yield one.start()


def connect(service: Service) -> socket.socket:
    return socket.create_connection(("127.0.0.1", service.port), 30)


def answer(service: Service, *parts: bytes) -> bytes:
    """The whole response, until the service closes the connection."""
    with connect(service) as connection:
        for part in parts:
            try:
                connection.sendall(part)
            except OSError:
                break
        found = b""
        try:
            while piece := connection.recv(65536):
                found += piece
        except OSError:
            pass
        return found


def test_endless_headers_are_cut_off(service: Service) -> None:
    found = answer(service, b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: ", *[b"x" * 65536] * 16)
    assert b"too long" in found or found == b""
    assert service.native("/whoami")["root"]


def test_a_large_body_without_a_key_is_not_read(service: Service) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
    found = answer(service, head + b"Content-Length: 9000000\r\n\r\n" + b"{")
    assert b"200 OK" in found
    assert b"RequestSizeLimitExceeded" in found


def test_many_idle_connections_do_not_block_others(service: Service) -> None:
    idle = [connect(service) for _ in range(1100)]
    try:
        service.create("beside-idlers", "true")
        assert service.wait("beside-idlers")["state"] == "succeeded"
    finally:
        for connection in idle:
            connection.close()


def test_a_job_whose_mount_has_an_endless_name_affects_only_itself(service: Service) -> None:
    service.create("endless", "true", PackageDir=["nfs://127.0.0.1:/" + "x" * 300 + ":/data"])
    assert service.wait("endless")["state"] == "failed"
    service.create("after-endless", "true")
    assert service.wait("after-endless")["state"] == "succeeded"


def test_clients_that_disconnect_while_they_wait_are_forgotten(service: Service) -> None:
    service.create("long", "sleep", "1000")
    token = make_token(KEY, time.time())
    request = f"GET /turnout/v1/jobs/long/wait?timeout=500 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
    for _ in range(20):
        with connect(service) as connection:
            connection.sendall(request.encode())
            time.sleep(0.01)
    began = time.monotonic()
    service.delete("long")
    service.create("next", "true")
    assert service.wait("next")["state"] == "succeeded"
    assert time.monotonic() - began < 60


def test_a_page_of_huge_lines_ends_early_and_loses_nothing(service: Service) -> None:
    service.create("huge", "sh", "-c", "head -c 9000000 /dev/zero | tr '\\0' x; echo; echo end")
    service.wait("huge")
    lines = [log.Log for log in service.logs("huge")]
    assert sum(map(len, lines)) == 9_000_003
    assert lines[-1] == "end"


@pytest.mark.parametrize(
    "body", [b'{"Name": "\\ud800"}', b'{"Name": "a\\u0000b"}', b"[" * 100_000, b'{"Name": 1e999}']
)
def test_odd_documents_get_the_documented_error(service: Service, body: bytes) -> None:
    head = f"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
    found = answer(service, head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
    assert found.startswith(b"HTTP/1.1 200 OK")
    assert json.loads(found.partition(b"\r\n\r\n")[2])["Response"]["Error"]["Code"]
