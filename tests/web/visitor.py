"""Opens a link like a browser: loads the page, takes its two secrets, and uses its WebSocket."""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

PATIENCE = 30


class Page(NamedTuple):
    address: str
    cookie: str
    page_token: str

    @contextmanager
    def socket(self, page_token: str | None = None) -> Iterator["Socket"]:
        parts = urlsplit(self.address)
        with connect(
            f"ws://{parts.netloc}{parts.path}/socket?columns=90&rows=20",
            origin=Origin(f"http://{parts.netloc}"),
            additional_headers={"Cookie": self.cookie},
            proxy=None,
        ) as connection:
            connection.send(self.page_token if page_token is None else page_token)
            yield Socket(connection)

    def knock(self, *, origin: str | None = None, cookie: str | None = None) -> int:
        """The HTTP status of the handshake."""
        parts = urlsplit(self.address)
        headers = {
            "Origin": f"http://{parts.netloc}" if origin is None else origin,
            "Cookie": self.cookie if cookie is None else cookie,
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        }
        connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE)
        try:
            connection.request("GET", f"{parts.path}/socket", headers={k: v for k, v in headers.items() if v})
            with connection.getresponse() as answer:
                return answer.status
        finally:
            connection.close()


class Socket:
    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.seen = ""
        self.told: dict[str, Any] = {}

    def type(self, text: str) -> None:
        self.connection.send(text.encode())

    def until(self, text: str) -> str:
        while text not in self.seen:
            assert self.take(), f"it ended: {self.seen!r} {self.told}"
        return self.seen

    def rest(self) -> dict[str, Any]:
        """The last text message of the service."""
        while self.take():
            pass
        return self.told

    def take(self) -> bool:
        try:
            message = self.connection.recv(PATIENCE)
        except ConnectionClosed:
            return False
        if isinstance(message, str):
            self.told = json.loads(message)
        else:
            self.seen += message.decode(errors="replace")
        return True


def open_page(uri: str) -> Page:
    with urllib.request.urlopen(uri, timeout=PATIENCE) as answer:
        text = answer.read().decode()
        cookie = answer.headers["Set-Cookie"].partition(";")[0]
    page_token = text.partition('turnout-page-token" content="')[2].partition('"')[0]
    assert page_token
    return Page(uri.partition("?")[0], cookie, page_token)


def status_of(uri: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(
        uri, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
