"""Runs the command lines in this process, and records what they send to a fake service."""

import json
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

from turnout.cli import main, table, tictl


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def nobody(monkeypatch, tmp_path):
    """Hides the login, variables and data directory of the user who runs the tests."""
    for name in ("TURNOUT_ENDPOINT", "TURNOUT_KEY", "TURNOUT_CONFIG", "TURNOUT_ROOT_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TURNOUT_DATA", str(tmp_path / "data"))
    table.has_colours.cache_clear()


@pytest.fixture
def run_tictl(monkeypatch, capsys) -> Run:
    return lambda *words: _run(tictl.main, "tictl", words, monkeypatch, capsys)


@pytest.fixture
def run_turnout(monkeypatch, capsys) -> Run:
    return lambda *words: _run(main.main, "turnout", words, monkeypatch, capsys)


def _run(entry, name, words, monkeypatch, capsys) -> Outcome:
    monkeypatch.setattr(sys, "argv", [name, *words])
    with pytest.raises(SystemExit) as ended:
        entry()
    out, err = capsys.readouterr()
    return Outcome(int(ended.value.code or 0), out, err)


class Recorder:
    """A fake service: gives the responses that a test sets, and records the requests."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []
        self.answers: dict[str, Any] = {}
        """Action or native path -> response, or a function of the fields that returns it."""

    def answer(self, what: str, fields: dict[str, Any]) -> Any:
        self.calls.append((what, fields))
        found = self.answers[what]
        return found(fields) if callable(found) else found


@pytest.fixture
def recorder(monkeypatch):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            recorder.headers.append(dict(self.headers))
            fields = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._send({"Response": recorder.answer(self.headers["X-TC-Action"], fields)})

        def do_GET(self) -> None:
            recorder.headers.append(dict(self.headers))
            url = urlsplit(self.path)
            fields = {name: values[0] for name, values in parse_qs(url.query).items()}
            self._send(recorder.answer(url.path.removeprefix("/turnout/v1/"), fields))

        def _send(self, answer: Any) -> None:
            body = json.dumps(answer).encode() if not isinstance(answer, bytes) else answer
            self.send_response(400 if b'"error"' in body else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        recorder = Recorder(server.server_port)
        monkeypatch.setenv("TURNOUT_ENDPOINT", recorder.endpoint)
        monkeypatch.setenv("TURNOUT_KEY", "someone:secret-enough")
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield recorder
        server.shutdown()
        serving.join()
