"""A minimal client, because on two cores its CPU time would be missing for the service."""

import asyncio
import hashlib
import hmac
import json
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any

import uvloop

from turnout.access import Key, make_token

CONNECTIONS = 32
KEY = Key("AKIDbench", "a-secret-for-benchmarks", "default", root=True)
CLUSTER = "ap-beijing"


class Requests:
    """Builds complete requests as bytes. The signing key and the date are computed once."""

    def __init__(self, port: int, key: Key = KEY) -> None:
        self._host = f"127.0.0.1:{port}"
        self._key_id = key.id
        self._now = int(time.time())
        self._date = time.strftime("%Y-%m-%d", time.gmtime(self._now))
        self._key = b"TC3" + key.secret.encode()
        for part in (self._date, "tia", "tc3_request"):
            self._key = hmac.digest(self._key, part.encode(), "sha256")
        self._bearer = make_token(key, self._now)

    def create(
        self, name: str, argv: Sequence[str], machine: str = "0U0G0P", mounts: Sequence[str] = ()
    ) -> bytes:
        mounted = {"PackageDir": list(mounts)} if mounts else {}
        return self.call("CreateJob", job_body(name, argv, machine) | mounted)

    def describe(self, name: str) -> bytes:
        return self.call("DescribeJob", {"Name": name, "Cluster": CLUSTER})

    def list(self, limit: int, offset: int) -> bytes:
        return self.call("ListJobs", {"Cluster": CLUSTER, "Limit": limit, "Offset": offset})

    def delete(self, name: str) -> bytes:
        return self.call("DeleteJob", {"Name": name, "Cluster": CLUSTER})

    def wait(self, job: str, until: str = "ended") -> bytes:
        """The long poll; `job` is a name or an id."""
        return self.get(f"/turnout/v1/jobs/{job}/wait?for={until}&timeout=300", self._bearer)

    def put(self, url: str) -> bytes:
        """Uploads an empty object."""
        return (
            f"PUT /turnout/v1/object?url={url} HTTP/1.1\r\nHost: {self._host}\r\n"
            f"Authorization: Bearer {self._bearer}\r\nContent-Length: 0\r\n\r\n"
        ).encode()

    def call(self, action: str, document: dict[str, Any]) -> bytes:
        """Signed with TC3-HMAC-SHA256, as the SDK does."""
        body = json.dumps(document).encode()
        canonical = (
            f"POST\n/\n\ncontent-type:application/json\nhost:{self._host}\n\ncontent-type;host\n"
            + hashlib.sha256(body).hexdigest()
        )
        scope = f"{self._date}/tia/tc3_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        to_sign = f"TC3-HMAC-SHA256\n{self._now}\n{scope}\n{digest}"
        signature = hmac.digest(self._key, to_sign.encode(), "sha256").hex()
        head = (
            f"POST / HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
            f"X-TC-Action: {action}\r\nX-TC-Version: 2018-02-26\r\nX-TC-Region: ap-beijing\r\n"
            f"X-TC-Timestamp: {self._now}\r\nAuthorization: TC3-HMAC-SHA256 Credential={self._key_id}/{scope}, "
            f"SignedHeaders=content-type;host, Signature={signature}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def get(self, path: str, bearer: str = "") -> bytes:
        authorization = f"Authorization: Bearer {bearer}\r\n" if bearer else ""
        return f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\n{authorization}\r\n".encode()


def job_body(name: str, argv: Sequence[str], machine: str = "0U0G0P") -> dict[str, Any]:
    return {
        "Name": name,
        "Cluster": CLUSTER,
        "RuntimeVersion": "tia-1.7.0",
        "ScaleTier": "CUSTOM",
        "MasterType": machine,
        "Command": [argv[0]],
        "Args": list(argv[1:]),
    }


class Line:
    """One connection, one request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connect()

    def ask(self, request: bytes) -> bytes:
        if self._is_closed():
            self._connect()
        self._socket.sendall(request)
        got = b""
        while True:
            part = self._socket.recv(65536)
            if not part:
                raise ConnectionError("the service closed the connection")
            got += part
            body = _body(got)
            if body is not None:
                return _good(body)

    def close(self) -> None:
        self._socket.close()

    def _connect(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self._port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _is_closed(self) -> bool:
        """Servers close connections that were idle for a few seconds."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False


def flood(port: int, requests: Sequence[bytes], connections: int = CONNECTIONS) -> tuple[float, list[bytes]]:
    """Seconds until all are answered, and the responses in no particular order."""
    return uvloop.run(_flood(port, requests, min(connections, len(requests))))


async def _flood(port: int, requests: Sequence[bytes], connections: int) -> tuple[float, list[bytes]]:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    answers: list[bytes] = []
    left = iter(requests)
    pumps = [_Pump(left, len(requests), answers, done) for _ in range(connections)]
    for pump in pumps:
        await loop.create_connection(lambda pump=pump: pump, "127.0.0.1", port)
    before = time.perf_counter()
    for pump in pumps:
        pump.send()
    await done
    seconds = time.perf_counter() - before
    for pump in pumps:
        pump.close()
    return seconds, [_good(answer) for answer in answers]


class _Pump(asyncio.Protocol):
    """Sends the next request as soon as the last one is answered."""

    def __init__(
        self, left: Iterator[bytes], wanted: int, answers: list[bytes], done: asyncio.Future[None]
    ) -> None:
        self._left = left
        self._wanted = wanted
        self._answers = answers
        self._done = done
        self._got = b""
        self._waits = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        # The service closes connections that have been idle for a few seconds.
        if self._waits and not self._done.done():
            self._done.set_exception(exc or ConnectionError("the service closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._got += data
        body = _body(self._got)
        if body is None:
            return
        self._got = b""
        self._waits = False
        self._answers.append(body)
        if len(self._answers) == self._wanted:
            self._done.set_result(None)
        else:
            self.send()

    def send(self) -> None:
        request = next(self._left, None)
        if request is not None:
            self._waits = True
            self._transport.write(request)

    def close(self) -> None:
        self._transport.close()


def _body(got: bytes) -> bytes | None:
    """None while the response is incomplete."""
    head, separator, body = got.partition(b"\r\n\r\n")
    if not separator:
        return None
    size = head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
    return body if len(body) >= int(size) else None


def _good(answer: bytes) -> bytes:
    if b'"Error"' in answer or b'"error"' in answer:
        raise AssertionError(f"the service answers {answer.decode(errors='replace')}")
    return answer
