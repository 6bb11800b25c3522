"""Clients that begin to send and then wait do not keep the others out."""

import contextlib
import http.client
import socket
from collections.abc import Iterator

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.gateways.s3.conftest import OTHER, ROOT, THIRD, Gateway, open_gateway
from tests.gateways.s3.test_rough import eventually
from turnout import bodies
from turnout.access import Key
from turnout.bodies import WINDOW

TOTAL = 4 * WINDOW


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    """Little memory, and little patience with those who are slow."""
    monkeypatch.setattr(bodies, "UPLOAD_SECONDS", 0.3)
    monkeypatch.setattr(bodies, "SLOW_SECONDS", 0.3)
    monkeypatch.setattr(bodies, "SLOW_RATE", 1 << 40)
    with open_gateway(body_bytes=TOTAL) as one:
        yield one


@contextlib.contextmanager
def stalled(
    gateway: Gateway, key: Key, method: str, path: str, length: int, **headers: str
) -> Iterator[http.client.HTTPConnection]:
    """A request whose body does not come."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    request = AWSRequest(method, gateway.url + path, {"x-amz-content-sha256": "UNSIGNED-PAYLOAD", **given})
    S3SigV4Auth(Credentials(key.id, key.secret), "s3", "us-east-1").add_auth(request)
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    with contextlib.closing(connection):
        connection.putrequest(method, path)
        for name, value in (*request.headers.items(), ("Content-Length", str(length))):
            connection.putheader(name, value)
        connection.endheaders()
        connection.send(b"<")
        yield connection


def test_uploads(gateway: Gateway):
    for key in (ROOT, OTHER, THIRD):
        gateway.client(key).create_bucket(Bucket=f"of-{key.project}")
    with contextlib.ExitStack() as stack:
        waiting = [
            stack.enter_context(stalled(gateway, key, "PUT", f"/of-{key.project}/{number}", 1 << 20))
            for key in (ROOT, OTHER)
            for number in range(2)
        ]
        eventually(lambda: gateway.bodies.size == TOTAL)
        gateway.client(THIRD).put_object(Bucket="of-third", Key="a", Body=b"x" * 1_000_000)
        answers = [connection for connection in waiting if _answered(connection)]
        assert answers
        response = answers[0].getresponse()
        assert response.status == 503
        assert b"SlowDown" in response.read()
    assert gateway.client(THIRD).head_object(Bucket="of-third", Key="a")["ContentLength"] == 1_000_000


def test_documents(gateway: Gateway):
    """Their memory is that of the other APIs' requests too."""
    gateway.client(THIRD).create_bucket(Bucket="docs")
    half = TOTAL // 4
    with (
        stalled(gateway, ROOT, "POST", "/docs?delete", half),
        stalled(gateway, OTHER, "POST", "/docs?delete", half),
    ):
        eventually(lambda: gateway.bodies.size == 2 * half)
        deleted = gateway.client(THIRD).delete_objects(Bucket="docs", Delete={"Objects": [{"Key": "none"}]})
        assert [one["Key"] for one in deleted["Deleted"]] == ["none"]


def test_the_length_of_another_kind_of_body_reserves_nothing(gateway: Gateway):
    size = 100_000
    with stalled(gateway, ROOT, "POST", "/docs?delete", size, x_amz_decoded_content_length="1"):
        eventually(lambda: gateway.bodies.size > 0)
        assert gateway.bodies.size == size


def test_forms(gateway: Gateway):
    """Their senders are not known before the fields have come."""
    head = (
        f"POST /docs HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 100000\r\n\r\n--b\r\n"
    ).encode()
    strangers = TOTAL // 8
    with contextlib.ExitStack() as stack:
        for _ in range(strangers // (64 << 10)):
            connection = socket.create_connection(("127.0.0.1", gateway.port))
            stack.enter_context(connection).sendall(head)
        eventually(lambda: gateway.bodies.size == strangers)
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as last:
            last.sendall(head.replace(b"100000", b"11") + b"--b--\r\n")
            assert b"503" not in last.recv(100)


def _answered(connection: http.client.HTTPConnection) -> bool:
    assert connection.sock
    connection.sock.settimeout(0.1)
    try:
        return bool(connection.sock.recv(1, socket.MSG_PEEK))
    except TimeoutError:
        return False
    finally:
        connection.sock.settimeout(30)
