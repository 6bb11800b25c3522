"""A REST service that says what it is told to say, and keeps what it is asked."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Asked(NamedTuple):
    verb: str
    target: str
    body: Any
    headers: dict[str, str]


class Stub:
    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.status = 200
        self.body: Any = {}
        """Bytes are sent as they are."""
        self.gate = threading.Event()
        """Answers wait for it."""
        self.gate.set()
        self.connections = 0
        self.port = 0
        self.known = True
        """Whether callers are."""

    def say(self, body: Any, status: int = 200) -> None:
        self.body, self.status = body, status

    def fail(self, http: int, status: str, message: str, **info: Any) -> None:
        error = {"code": http, "status": status, "message": message} | info
        self.say({"error": error}, http)

    @property
    def last(self) -> Asked:
        return self.asked[-1]


@contextmanager
def stub() -> Iterator[Stub]:
    one = Stub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            one.connections += 1

        def answer(self) -> None:
            if self.path == "/turnout/v1/whoami":
                self.send(200 if one.known else 401, {"project": "p"})
                return
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            one.asked.append(Asked(self.command, self.path, json.loads(body) if body else None, headers))
            one.gate.wait(30)
            self.send(one.status, one.body)

        def send(self, status: int, body: Any) -> None:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = answer

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        one.port = server.server_port
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield one
        finally:
            one.gate.set()
            server.shutdown()
            thread.join()
