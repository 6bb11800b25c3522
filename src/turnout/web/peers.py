"""Without auth, only programs of the same user on this machine are let in, and no web page of somebody else's."""

import os
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class LocalPeersOnly:
    """Checks Host and Origin (a browser that was lured here names another one) and whose socket the peer's is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            refusal = refusal_of(scope)
            if refusal:
                await PlainTextResponse(refusal + "\n", 403)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def refusal_of(scope: Scope) -> str:
    """Why a request does not surely come from the user who runs the service, on this machine; empty if it does."""
    headers = dict(scope["headers"])
    if not _loopback(headers.get(b"host", b"").decode("latin-1")):
        return "without auth only requests to a loopback address are answered"
    origin = headers.get(b"origin", b"").decode("latin-1")
    if origin and not _loopback(origin):
        return "without auth no requests from web pages are answered"
    if not _same_user(scope["client"], scope["server"]):
        return "without auth only the user who runs the service may use it"
    return ""


def _loopback(host: str) -> bool:
    """`127.0.0.1:8470`, `localhost`, `[::1]:80`, and `http://127.0.0.1:8470`, which tccli sends as its Host."""
    try:
        name = urlsplit(host if "://" in host else f"//{host}").hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def _same_user(client: tuple[str, int], server: tuple[str, int]) -> bool:
    """The kernel knows who owns the other end of a connection from this machine to itself."""
    ours, theirs = f":{server[1]:04X}", f":{client[1]:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, remote, _, _, _, _, uid, *_ = line.split()
            if local.endswith(theirs) and remote.endswith(ours):
                return int(uid) == os.getuid()
    return False
