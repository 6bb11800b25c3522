"""The ports that a starting service takes from the supervisor."""

import json
import socket
import threading
from pathlib import Path

from turnout.engines.local.supervisor.listeners import Listeners, Port


def test_reports_that_follow_the_answer_are_left_alone(tmp_path: Path):
    """A job may end while the service asks for its ports: the report is in the same packet."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = Port("http", "127.0.0.1", listening.getsockname()[1], "--port")

    def answer() -> None:
        connection, _ = supervisor.accept()
        with connection:
            connection.recv(1 << 16)
            lines = [{"held": [port.key]}, {"ended": {"attempt": "1.1"}}]
            data = "".join(json.dumps(line) + "\n" for line in lines).encode()
            socket.send_fds(connection, [data], [listening.fileno()])

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as supervisor, listening:
        supervisor.bind(str(tmp_path / "socket"))
        supervisor.listen()
        serving = threading.Thread(target=answer)
        serving.start()
        with Listeners([port]) as taken:
            taken.take(tmp_path)
            assert [one.getsockname() for one in taken.listening] == [listening.getsockname()]
        serving.join()
