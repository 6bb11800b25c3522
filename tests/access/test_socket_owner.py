"""The user of a connection, by its addresses."""

import os
import socket

import pytest

from turnout.access import socket_owner as module
from turnout.access.socket_owner import socket_owner

WAYS = (module._ask_kernel, module._search_tables)


def listener(host: str) -> socket.socket:
    if host != "both":
        return socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    return socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("host", "to"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("both", "127.0.0.1"), ("both", "::ffff:127.0.0.1")],
)
def test_of_a_connection(host: str, to: str, way):
    with listener(host) as server, socket.create_connection((to, server.getsockname()[1])) as client:
        accepted, peer = server.accept()
        with accepted:
            found = way(peer[:2], accepted.getsockname()[:2])
            assert found == (os.getuid(), os.fstat(client.fileno()).st_ino)
            ours = way(accepted.getsockname()[:2], peer[:2])
            assert ours == (os.getuid(), os.fstat(accepted.fileno()).st_ino)


@pytest.mark.parametrize("way", WAYS)
def test_a_listening_socket_is_no_connection(way):
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        assert way(one.getsockname(), other.getsockname()) is None


def test_a_closed_one_has_no_owner():
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, peer = server.accept()
        with accepted:
            client.close()
            assert socket_owner(peer, server.getsockname()) is None


def test_without_the_kernels_answer_the_tables_are_searched(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(module, "_ask_kernel", refuse)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        assert socket_owner(client.getsockname(), server.getsockname())
