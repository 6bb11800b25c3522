"""HTTP/1.1 for the calls of the gateway.

`http.client` would take longer to import than everything else in the runner: it imports the package
for mail, and TLS. Only transfers of objects use it.
"""

from __future__ import annotations

import contextlib
import socket
from typing import BinaryIO, Callable, Dict, NamedTuple, Optional

_LONGEST_LINE = 1 << 16
_MOST_HEADERS = 200

Wrap = Callable[[socket.socket], socket.socket]


class BadAnswer(OSError):
    """It is not HTTP, or ends too early."""

    def __init__(self, message: str) -> None:
        super().__init__(0, message)


class Answer(NamedTuple):
    status: int
    body: bytes


class Connection:
    """All methods raise OSError. After an error it has to be closed."""

    def __init__(self, host: str, port: int, timeout: float, wrap: Optional[Wrap]) -> None:
        """Connects. `wrap` makes a TLS connection of a plain one."""
        self._host = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        plain = socket.create_connection((host, port), timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._socket = wrap(plain) if wrap else plain
        except BaseException:
            plain.close()
            raise
        self._reader: BinaryIO = self._socket.makefile("rb")

    def exchange(
        self, method: str, path: str, body: bytes, headers: Dict[str, str], timeout: float
    ) -> Answer:
        self._socket.settimeout(timeout)
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self._host}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        status, found = self._head()
        while status < 200:
            status, found = self._head()
        body = self._body(status, found)
        if found.get("connection", "").lower() == "close":
            self.close()
        return Answer(status, body)

    @property
    def closed(self) -> bool:
        return self._reader.closed

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._reader.close()
            self._socket.close()

    def _head(self) -> "tuple[int, Dict[str, str]]":
        version, _, rest = self._line().partition(" ")
        code = rest.partition(" ")[0]
        if version not in ("HTTP/1.1", "HTTP/1.0") or not code.isdigit():
            raise BadAnswer("the answer is not HTTP")
        headers: Dict[str, str] = {"connection": "close"} if version == "HTTP/1.0" else {}
        for _ in range(_MOST_HEADERS):
            line = self._line()
            if not line:
                return int(code), headers
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        raise BadAnswer("the answer has too many headers")

    def _body(self, status: int, headers: Dict[str, str]) -> bytes:
        if status in (204, 304):
            return b""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._chunks()
        size = headers.get("content-length", "")
        if size.isdigit():
            return self._exactly(int(size))
        headers["connection"] = "close"
        return self._reader.read()

    def _chunks(self) -> bytes:
        found = b""
        while True:
            text = self._line().partition(";")[0].strip()
            try:
                size = int(text, 16)
            except ValueError:
                raise BadAnswer("the answer is not HTTP") from None
            if not size:
                while self._line():
                    pass
                return found
            found += self._exactly(size)
            self._line()

    def _exactly(self, size: int) -> bytes:
        data = self._reader.read(size)
        if len(data) < size:
            raise BadAnswer("the answer ends too early")
        return data

    def _line(self) -> str:
        line = self._reader.readline(_LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise BadAnswer("the answer ends too early")
        return line.decode("latin-1").rstrip("\r\n")
