"""Finds the user of a request by its socket."""

import socket

import pytest

from turnout.web.peers import refusal_of


def scope(client: tuple[str, int], server: tuple[str, int], *headers: tuple[bytes, bytes]) -> dict:
    headers = headers or ((b"host", b"127.0.0.1:8470"),)
    return {"type": "http", "client": client[:2], "server": server[:2], "headers": list(headers)}


@pytest.mark.parametrize(
    ("family", "host"),
    [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "127.0.0.9"), (socket.AF_INET6, "::1")],
)
def test_our_own_socket_is_known_until_it_is_closed(family: int, host: str):
    with socket.socket(family) as listener:
        listener.bind((host, 0))
        listener.listen()
        client = socket.create_connection(listener.getsockname()[:2])
        here, there = client.getsockname(), listener.getsockname()
        accepted, _ = listener.accept()
        assert refusal_of(scope(here, there)) == ""
        # The same ports at another address are a different connection.
        assert refusal_of(scope(("127.0.0.77", here[1]), there))
        client.close()
        # A closed socket has no user; the kernel's table shows root.
        assert refusal_of(scope(here, there))
        accepted.close()


def test_a_web_page_is_refused_however_it_names_itself():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        pair = client.getsockname(), listener.getsockname()
        good = (b"host", b"localhost:8470")
        assert refusal_of(scope(*pair, good)) == ""
        assert refusal_of(scope(*pair, (b"host", b"evil.example"), good))
        assert refusal_of(scope(*pair, good, (b"origin", b"http://evil.example")))
        assert refusal_of(scope(*pair, good, (b"sec-fetch-site", b"cross-site")))
        assert refusal_of(scope(*pair, good, (b"sec-fetch-site", b"same-origin"))) == ""
