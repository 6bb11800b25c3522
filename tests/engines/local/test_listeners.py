"""The ports that a starting service takes from the supervisor."""

import json
import socket
import threading
from pathlib import Path

import pytest

from turnout.engines.local.supervisor.listeners import Listeners, Port


@pytest.mark.parametrize("pieces", ["one", "two"])
@pytest.mark.parametrize("report", ["before", "after"])
def test_reports_beside_the_answer_are_left_alone(tmp_path: Path, report: str, pieces: str):
    """A job may end while the service asks for its ports."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = Port("http", "127.0.0.1", listening.getsockname()[1], "--port")

    def answer() -> None:
        connection, _ = supervisor.accept()
        with connection:
            connection.recv(1 << 16)
            held, ended = (json.dumps(one).encode() + b"\n" for one in ({"held": [port.key]}, {"t": "ended"}))
            first, second = (ended, held) if report == "before" else (held, ended)
            if pieces == "one":
                socket.send_fds(connection, [first + second], [listening.fileno()])
            elif report == "before":
                connection.sendall(first[:5])
                socket.send_fds(connection, [first[5:] + second], [listening.fileno()])
            else:
                socket.send_fds(connection, [first[:5]], [listening.fileno()])
                connection.sendall(first[5:] + second)

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as supervisor, listening:
        supervisor.bind(str(tmp_path / "socket"))
        supervisor.listen()
        serving = threading.Thread(target=answer)
        serving.start()
        with Listeners([port]) as taken:
            taken.take(tmp_path)
            assert [one.getsockname() for one in taken.listening] == [listening.getsockname()]
        serving.join()
