"""Unauthenticated clients that send much: the memory of the service, and other clients meanwhile."""

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.running import KEY, Service, running
from tests.web.memory import resident
from turnout.access import make_token

CONNECTIONS = 200
BODY = 12 << 20
SENT = 2 << 20
"""Bytes that each connection sends, if the service reads them."""
MOST = 40 << 20
"""The growth of the service's memory that is allowed."""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running() as one:
        yield one.start()


class Growth:
    """The growth of the service's peak memory."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.before = resident(service)
        self.most = 0

    def look(self) -> None:
        self.most = max(self.most, resident(self._service) - self.before)


HEADS = {
    "modelarts, any token": "POST /v2/default/training-jobs HTTP/1.1\r\nX-Auth-Token: any\r\n",
    "modelarts, nothing": "POST /v2/default/training-jobs HTTP/1.1\r\n",
    "modelarts, a login": "POST /v3/auth/tokens HTTP/1.1\r\n",
    "tia, nothing": "POST / HTTP/1.1\r\nContent-Type: application/json\r\n",
    "tia, a form": "POST / HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n",
    "vertex, any token": "POST /v1/projects/p/locations/us-central1/customJobs HTTP/1.1\r\nAuthorization: Bearer x\r\n",
    "vertex, a login": "POST /token HTTP/1.1\r\n",
    "native": "POST /turnout/v1/keys HTTP/1.1\r\nAuthorization: Bearer x\r\n",
}


def claiming() -> str:
    """A request head that names a key, with a wrong signature."""
    now = int(time.time())
    date = time.strftime("%Y-%m-%d", time.gmtime(now))
    return (
        "POST / HTTP/1.1\r\nContent-Type: application/json\r\n"
        f"X-TC-Timestamp: {now}\r\nX-TC-Action: CreateJob\r\nX-TC-Version: 2018-02-26\r\n"
        f"Authorization: TC3-HMAC-SHA256 Credential={KEY.id}/{date}/tia/tc3_request, "
        f"SignedHeaders=content-type;host, Signature={'0' * 64}\r\n"
    )


def flood(service: Service, head: str, growth: Growth, chunked: bool = False) -> None:
    """All connections send concurrently, as much as the service reads, and stay open."""
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {BODY}"
    whole = (head + f"Host: 127.0.0.1\r\n{length}\r\n\r\n").encode()
    piece = b" " * (1 << 18)
    piece = b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece
    with contextlib.ExitStack() as opened:
        senders: list[socket.socket] = []
        for _ in range(CONNECTIONS):
            sender = opened.enter_context(socket.create_connection(("127.0.0.1", service.port), 30))
            sender.sendall(whole)
            sender.setblocking(False)
            senders.append(sender)
        sent = dict.fromkeys(senders, 0)
        stuck = 0
        while stuck < 20:
            moved = False
            for sender, count in sent.items():
                if count < SENT:
                    with contextlib.suppress(OSError):
                        sent[sender] += sender.send(piece)
                        moved = True
            growth.look()
            stuck = 0 if moved else stuck + 1
            if not moved:
                time.sleep(0.05)
            if all(count >= SENT for count in sent.values()):
                break
        # Other clients are served meanwhile.
        assert service.native("/whoami")["root"]
        growth.look()


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS.keys())
def test_bodies_without_a_key_take_little_memory(service: Service, head: str) -> None:
    growth = Growth(service)
    flood(service, head, growth)
    assert growth.most < MOST


@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_of_clients_that_only_know_a_key_id_take_little_more(service: Service, chunked: bool) -> None:
    growth = Growth(service)
    flood(service, claiming(), growth, chunked)
    assert growth.most < MOST + (16 << 20)


LARGE = b"".join(b"a%d: %s\r\n" % (number, b"x" * 9000) for number in range(10))
MANY = b"".join(b"a%d: b\r\n" % number for number in range(250))


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n" + LARGE,
        b"GET / HTTP/1.1\r\nHost: x\r\n" + MANY,
        b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n" + LARGE + b"\r\nx",
    ],
    ids=["large headers", "many headers", "a slow body"],
)
def test_heads_without_a_key_take_little_memory_and_it_is_released(service: Service, head: bytes) -> None:
    growth = Growth(service)
    with contextlib.ExitStack() as opened:
        for _ in range(1000):
            sender = opened.enter_context(socket.create_connection(("127.0.0.1", service.port), 30))
            sender.sendall(head)
            growth.look()
        assert service.native("/whoami")["root"]
    assert growth.most < MOST
    deadline = time.monotonic() + 20
    while (left := resident(service) - growth.before) > 16 << 20 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left <= 16 << 20


@pytest.mark.slow
def test_the_memory_is_released(service: Service) -> None:
    before = resident(service)
    large = json.dumps({"Name": "x" * (9 << 20)}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {make_token(KEY, time.time())}"}

    def send(_: int) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
        connection.request("POST", "/v1/projects/default/locations/us-central1/customJobs", large, headers)
        status = connection.getresponse().status
        connection.close()
        return status

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(send, range(48))) <= {400, 429}
    deadline = time.monotonic() + 30
    while resident(service) - before > 16 << 20 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert resident(service) - before <= 16 << 20
