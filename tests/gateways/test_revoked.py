"""What a key has under way ends when it is revoked, through every gateway."""

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Iterator

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from tests.running import KEY, Service, free_port, running
from turnout.access import Key, make_token

SIZE = 64 << 20
S3_PORT = free_port()


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running(f"[storage.s3]\nport = {S3_PORT}\n") as one:
        one.start()
        assert ask(one, "POST", "/storage/v1/b", b'{"name": "large"}')
        assert ask(one, "PUT", "/turnout/v1/object?url=gs://large/object", bytes(SIZE))
        yield one


def ask(service: Service, method: str, path: str, body: bytes = b"") -> dict:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    headers = {"Authorization": f"Bearer {make_token(KEY, time.time())}", "Content-Type": "application/json"}
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    said = answer.read()
    assert answer.status in (200, 201, 204), said
    connection.close()
    return json.loads(said or b"{}")


def new_key(service: Service) -> Key:
    made = ask(service, "POST", "/turnout/v1/keys", b'{"project": "default"}')
    return Key(made["id"], made["secret"], "default")


def revoke(service: Service, key: Key) -> None:
    ask(service, "DELETE", f"/turnout/v1/keys/{key.id}")


def s3(key: Key):
    return boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{S3_PORT}",
        aws_access_key_id=key.id,
        aws_secret_access_key=key.secret,
        region_name="us-east-1",
        config=Config(signature_version="s3v4", retries={"max_attempts": 1}, read_timeout=20),
    )


def head(path: str, key: Key, more: str = "") -> bytes:
    token = make_token(key, time.time())
    method = "PUT" if more else "GET"
    lines = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n{more}\r\n"
    return lines.encode()


@contextlib.contextmanager
def slow_connection(port: int) -> Iterator[socket.socket]:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.settimeout(20)
        one.connect(("127.0.0.1", port))
        yield one


def rest(connection: socket.socket) -> int:
    """How many bytes still come before the other side ends."""
    count = 0
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(1 << 16):
            count += len(piece)
    return count


@pytest.mark.parametrize(
    "path",
    [
        "/storage/v1/b/large/o/object?alt=media",
        "/download/storage/v1/b/large/o/object?alt=media",
        "/turnout/v1/object?url=gs://large/object",
    ],
)
def test_a_download(service: Service, path: str) -> None:
    key = new_key(service)
    with slow_connection(service.port) as mine, slow_connection(service.port) as other:
        for connection, whose in ((mine, key), (other, KEY)):
            connection.sendall(head(path, whose))
            assert connection.recv(12) == b"HTTP/1.1 200"
        revoke(service, key)
        assert rest(mine) < SIZE // 2
        other.sendall(head("/healthz", KEY, "").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert rest(other) > SIZE, "another key's goes on"


def test_a_download_from_s3(service: Service) -> None:
    key = new_key(service)
    mine = s3(key).get_object(Bucket="large", Key="object")["Body"]
    other = s3(KEY).get_object(Bucket="large", Key="object")["Body"]
    assert mine.read(1000) == other.read(1000) == bytes(1000)
    revoke(service, key)
    with pytest.raises(BotoCoreError):
        mine.read()
    assert len(other.read()) == SIZE - 1000


def test_an_upload_to_s3(service: Service) -> None:
    key = new_key(service)
    link = s3(key).generate_presigned_url("put_object", {"Bucket": "large", "Key": "half"})
    path = link.partition(f":{S3_PORT}")[2]
    with slow_connection(S3_PORT) as mine:
        lines = f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1:{S3_PORT}\r\nContent-Length: {SIZE}\r\n\r\n"
        mine.sendall(lines.encode() + bytes(1 << 20))
        revoke(service, key)
        said = mine.recv(4096)
        assert b" 403 " in said.splitlines()[0], said
    assert not (service.data / "buckets" / "large" / "half").exists()


def test_an_upload(service: Service) -> None:
    key = new_key(service)
    with slow_connection(service.port) as mine:
        more = f"Content-Length: {SIZE}\r\n"
        mine.sendall(head("/turnout/v1/object?url=gs://large/other", key, more) + bytes(1 << 20))
        revoke(service, key)
        answer = mine.recv(4096)
        assert b" 401 " in answer.splitlines()[0]
    assert not (service.data / "buckets" / "large" / "other").exists()
