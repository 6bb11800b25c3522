"""A small model of the runner gateway, in a thread: it takes calls as the real one does, and fails as it is told to."""

import base64
import contextlib
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

ATTEMPT, REPLICA, TOKEN = "1786000000000000000.1", "worker-3", "secret-token-of-the-attempt"
POLL_SECONDS = 1.0

Document = dict[str, Any]


class FakeGateway:
    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        """`certificate`: files of the certificate and its key."""
        self.changed = threading.Condition()
        self.calls: list[tuple[str, Any]] = []
        self.instance = ""
        self.claim: Document = {
            "granted": True,
            "restarts": 0,
            "ports": 2,
            "log_bytes": 1 << 30,
            "sample_seconds": 60,
        }
        self.plan: Callable[[Document], Document] = lambda _: {}
        self.arrival: Document | None = None
        self.give_up = ""
        self.all_arrived = True
        self.status = 0
        """If set, every call gets it."""
        self.logs = [bytearray(), bytearray()]
        self.marks: list[list[int]] = []
        self.samples: list[Document] = []
        self.idle: list[float | None] = []
        self.files: dict[str, str] = {}
        self.started: list[Document] = []
        self.ended: list[Document] = []
        self.saved: list[Document] = []
        self.orders: list[Document] = []
        self.objects: dict[int, dict[str, bytes]] = {}
        self.etags: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        """Sizes that the list says wrongly, by key."""
        self.page = 1000
        self.absolute = False
        """Signed requests are absolute, as those of another store."""
        self.shell_output: dict[str, bytes] = {}
        self.shell_codes: dict[str, int] = {}
        self.shell_input: list[Document] = []
        self.strange: list[str] = []
        """What no runner should do."""
        self.fault: Callable[[str, int], str] = lambda name, count: ""
        """By name and number of a call: "before" breaks it, "after" takes it and breaks it, "half" sends half of the
        answer, "503" is answered.
        """
        self._count: dict[str, int] = {}
        self._certificate = certificate
        self._server: ThreadingHTTPServer | None = None
        self._open: set[socket.socket] = set()
        self.port = 0
        self.come_back()

    @property
    def endpoint(self) -> str:
        return f"{'https' if self._certificate else 'http'}://127.0.0.1:{self.port}/base"

    # Being there.

    def come_back(self) -> None:
        gateway = self

        class Handler(_Handler):
            def setup(self) -> None:
                super().setup()
                self.gateway = gateway
                gateway._open.add(self.connection)

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, *_: object) -> None:
                pass

        self._server = Server(("127.0.0.1", self.port), Handler)
        if self._certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def go_away(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        for connection in list(self._open):
            _break(connection)
        self._open.clear()

    # For tests.

    def order(self, kind: str, **fields: Any) -> None:
        with self.changed:
            self.orders.append({"number": len(self.orders) + 1, "kind": kind, **fields})
            self.changed.notify_all()

    def wait_for(self, what: Callable[[], Any], seconds: float = 20) -> Any:
        """Waits until it is true. Raises AssertionError if that takes too long."""
        until = time.monotonic() + seconds
        with self.changed:
            while not (found := what()):
                if not self.changed.wait(until - time.monotonic()):
                    raise AssertionError(
                        f"it never happened; the calls were {[name for name, _ in self.calls]}"
                    )
            return found

    def named(self, name: str) -> list[Any]:
        return [body for called, body in self.calls if called == name]

    # The calls.

    def answer(self, name: str, body: Any) -> tuple[int, Document]:
        if name.startswith("shell/"):
            return 200, self._shell(name, body)
        return getattr(self, f"_{name}")(body)

    def _claim(self, body: Document) -> tuple[int, Document]:
        return 200, self.claim

    def _arrive(self, body: Document) -> tuple[int, Document]:
        self.arrival = body
        self._poll(lambda: self.all_arrived or self.give_up)
        if self.give_up:
            return 200, {"give_up": self.give_up}
        if not self.all_arrived:
            return 200, {"ready": False}
        home = body["home"]
        plan = {
            "env": {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": f"{home}/space/work"},
            "cwd": f"{home}/space/work",
            "dirs": ["space/work", "space/tmp", "shims"],
            "grace": 10,
            "shell": True,
            "a field of a newer service": {},
        }
        return 200, {"ready": True, "plan": {**plan, **self.plan(body)}}

    def _started(self, body: Document) -> tuple[int, Document]:
        if body not in self.started:
            self.started.append(body)
        return 200, {}

    def _tell(self, body: bytes) -> tuple[int, Document]:
        line, _, data = body.partition(b"\n")
        header = json.loads(line)
        if len(data) > 1 << 20:
            self.strange.append(f"a call with {len(data)} bytes")
        for piece in header["pieces"]:
            fresh, data = data[: piece["size"]], data[piece["size"] :]
            log = self.logs[piece["stream"]]
            if piece["offset"] <= len(log):
                log[piece["offset"] :] = fresh + log[piece["offset"] + len(fresh) :]
        if data:
            self.strange.append("bytes that no piece describes")
        for mark in header["marks"]:
            if mark[1] > len(self.logs[0]) or mark[2] > len(self.logs[1]):
                self.strange.append(f"mark {mark} before its bytes")
            if not self.marks or mark[0] > self.marks[-1][0]:
                self.marks.append(mark)
        self.samples += header["samples"]
        self.idle.append(header["idle"])
        self.files.update(header["files"])
        return 200, {"sizes": [len(log) for log in self.logs], "order": len(self.orders)}

    def _wait(self, body: Document) -> tuple[int, Document]:
        self._poll(lambda: len(self.orders) > body["seen"])
        return 200, {"orders": self.orders[body["seen"] :], "order": len(self.orders)}

    def _ended(self, body: Document) -> tuple[int, Document]:
        if body["sizes"] != [len(log) for log in self.logs]:
            self.strange.append(f"an end with {body['sizes']} of {[len(log) for log in self.logs]} bytes")
        if body not in self.ended:
            self.ended.append(body)
        return 200, {}

    def _saved(self, body: Document) -> tuple[int, Document]:
        self.saved.append(body)
        return 200, {}

    def _stage(self, body: Document) -> tuple[int, Document]:
        mount = body["mount"]
        if body["op"] == "put":
            return 200, {"requests": [self._sign("PUT", mount, item["key"]) for item in body["objects"]]}
        if mount not in self.objects:
            return 200, {"missing": "there is nothing at obs://bucket/dir/"}
        keys = sorted(key for key in self.objects[mount] if key > body["after"])
        found = [
            {
                "key": key,
                "size": self.sizes.get(key, len(self.objects[mount][key])),
                "etag": self.etags.get(key, ""),
                "crc32c": "",
                "get": self._sign("GET", mount, key),
            }
            for key in keys[: self.page]
        ]
        return 200, {"objects": found, "after": keys[self.page - 1] if len(keys) > self.page else ""}

    def _sign(self, method: str, mount: int, key: str) -> Document:
        path = f"/objects/{mount}/{quote(key, safe='')}"
        if self.absolute:
            path = f"http://127.0.0.1:{self.port}/store{path}?signature=secret-signature"
        return {"method": method, "url": path, "headers": {"X-Signed": "yes"}}

    def _shell(self, name: str, body: Any) -> Document:
        _, id, direction = name.split("/")
        if direction == "output":
            data, offset, code = body
            taken = self.shell_output.get(id, b"")
            self.shell_output[id] = taken[:offset] + data
            if not data:
                self.shell_codes[id] = code
            return {}
        self._poll(lambda: len(self.shell_input) > body["after"])
        return {"events": self.shell_input[body["after"] :], "after": len(self.shell_input)}

    def type(self, text: str) -> None:
        with self.changed:
            self.shell_input.append({"data": base64.b64encode(text.encode()).decode()})
            self.changed.notify_all()

    def _poll(self, ready: Callable[[], Any]) -> None:
        self.changed.wait_for(lambda: ready() or self._server is None, POLL_SECONDS)

    def next_fault(self, name: str) -> str:
        self._count[name] = self._count.get(name, 0) + 1
        return self.fault(name, self._count[name])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    gateway: FakeGateway

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        prefix = f"/base/runner/v1/{ATTEMPT}/{REPLICA}/"
        data = self.rfile.read(int(self.headers["Content-Length"]))
        name = self.path.removeprefix(prefix)
        gateway = self.gateway
        if not self._is_ours():
            return self._answer(401, {})
        fault = gateway.next_fault(name)
        if fault == "before":
            return _break(self.connection)
        if fault == "503":
            return self._answer(503, {})
        if gateway.status:
            return self._answer(gateway.status, {"message": "as the test wants it"})
        with gateway.changed:
            instance = self.headers["X-Turnout-Runner"]
            gateway.instance = gateway.instance or instance
            if instance != gateway.instance:
                return self._answer(409, {})
            body: Any = data
            if name.startswith("shell/") and name.endswith("/output"):
                code = int(self.headers.get("X-Exit-Code", 0))
                body = (data, int(self.headers["X-Turnout-Offset"]), code)
            elif name != "tell":
                body = json.loads(data)
            gateway.calls.append((name, body))
            status, answer = gateway.answer(name, body)
            gateway.changed.notify_all()
        if fault == "after":
            return _break(self.connection)
        return self._answer(status, answer, half=fault == "half")

    def do_GET(self) -> None:
        mount, key = self._object()
        fault = self.gateway.next_fault(f"GET {key}")
        data = self.gateway.objects[mount].get(key)
        if fault == "403":
            return self._answer(403, {})
        if data is None:
            return self._answer(404, {})
        start, end = 0, len(data)
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            start, end = int(wanted[1]), int(wanted[2]) + 1
        self.gateway.calls.append((f"GET {key}", (start, end)))
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        if fault == "half":
            self.wfile.write(data[start : (start + end) // 2])
            return _break(self.connection)
        self.wfile.write(data[start:end])
        return None

    def do_PUT(self) -> None:
        mount, key = self._object()
        fault = self.gateway.next_fault(f"PUT {key}")
        size = int(self.headers["Content-Length"])
        data = self.rfile.read(size)
        if len(data) < size:
            return _break(self.connection)
        if fault in ("403", "503"):
            return self._answer(int(fault), {})
        with self.gateway.changed:
            self.gateway.objects.setdefault(mount, {})[key] = data
            self.gateway.calls.append((f"PUT {key}", size))
            self.gateway.changed.notify_all()
        if fault == "after":
            return _break(self.connection)
        return self._answer(200, {})

    def _object(self) -> tuple[int, str]:
        path = self.path.partition("?")[0]
        if path.startswith("/store/"):
            if "Authorization" in self.headers or "X-Turnout-Runner" in self.headers:
                self.gateway.strange.append("the token was sent to another store")
        elif not self._is_ours():
            self.gateway.strange.append("a request for an object without the token")
        if self.headers["X-Signed"] != "yes":
            self.gateway.strange.append("a request without its signed headers")
        _, mount, key = path.removeprefix("/store").removeprefix("/base").removeprefix("/").split("/", 2)
        return int(mount), unquote(key)

    def _is_ours(self) -> bool:
        return self.headers["Authorization"] == f"Bearer {TOKEN}" and "X-Turnout-Runner" in self.headers

    def _answer(self, status: int, document: Document, half: bool = False) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if half:
            self.wfile.write(data[: len(data) // 2])
            return _break(self.connection)
        self.wfile.write(data)
        return None


def _break(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
