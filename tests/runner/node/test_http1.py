"""The runner's own HTTP client, against answers of every shape."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from turnout.runner.node.http1 import Answer, BadAnswer, Connection
from turnout.runner.node.settings import Endpoint, split_endpoint

Serve = Callable[..., Connection]
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A connection to a server that sends these answers, one for each request, and hangs up."""
    opened: list[Connection] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def run(answers: tuple[bytes, ...]) -> None:
        peer, _ = listener.accept()
        with peer:
            for answer in answers:
                while b"the body" not in peer.recv(65536):
                    pass
                peer.sendall(answer)

    def connect(*answers: bytes) -> Connection:
        threading.Thread(target=run, args=(answers,), daemon=True).start()
        opened.append(Connection("127.0.0.1", listener.getsockname()[1], 10, None))
        return opened[-1]

    yield connect
    for one in opened:
        one.close()
    listener.close()


def ask(connection: Connection) -> Answer:
    return connection.exchange("POST", "/call", b"the body", {"X-Name": "value"}, 10)


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 200, b"hi"),
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", 503, b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (CHUNKED + b"2\r\nhi\r\n3;x=y\r\n yo\r\n0\r\nA: b\r\n\r\n", 200, b"hi yo"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, b"x"),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", 200, b"until the end"),
    ],
)  # fmt: skip
def test_answers(serve: Serve, answer: bytes, status: int, body: bytes):
    assert ask(serve(answer)) == Answer(status, body)


def test_a_connection_is_used_again_unless_the_answer_says_close(serve: Serve):
    connection = serve(
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nb",
    )
    assert (ask(connection).body, connection.closed) == (b"a", False)
    assert (ask(connection).body, connection.closed) == (b"b", True)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-",
        b"SSH-2.0-OpenSSH\r\n",
        CHUNKED + b"zz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 300 + b"\r\n",
    ],
)
def test_what_is_no_answer(serve: Serve, answer: bytes):
    with pytest.raises(BadAnswer):
        ask(serve(answer))


def test_endpoints():
    assert split_endpoint("http://10.0.0.1:8470") == Endpoint("http", "10.0.0.1", 8470, "")
    assert split_endpoint("https://turnout.example.org/base") == Endpoint(
        "https", "turnout.example.org", 443, "/base"
    )
    assert split_endpoint("http://[fe80::1]:80/a/b") == Endpoint("http", "fe80::1", 80, "/a/b")
