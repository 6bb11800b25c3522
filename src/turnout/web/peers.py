"""Without auth, only programs of the same user on this machine are let in, and no web page of somebody else's."""

from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from turnout.access.peers import same_user

_OWN_PAGES = (b"none", b"same-origin")


class LocalPeersOnly:
    """Checks Host and Origin (a browser that was lured here names another one) and whose socket the peer's is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            refusal = refusal_of(scope)
            if refusal and scope["type"] == "websocket":
                await send({"type": "websocket.close"})
                return
            if refusal:
                await PlainTextResponse(refusal + "\n", 403)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def refusal_of(scope: Scope) -> str:
    """Why a request does not surely come from the user who runs the service, on this machine; empty if it does."""
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    if len(hosts) != 1 or not _loopback(hosts[0].decode("latin-1")):
        return "without auth only requests to a loopback address are answered"
    headers = dict(scope["headers"])
    origin = headers.get(b"origin", b"").decode("latin-1")
    if (origin and not _loopback(origin)) or headers.get(b"sec-fetch-site", b"none") not in _OWN_PAGES:
        return "without auth no requests from web pages are answered"
    if not same_user(scope["client"], scope["server"]):
        return "without auth only the user who runs the service may use it"
    return ""


def _loopback(host: str) -> bool:
    """`127.0.0.1:8470`, `localhost`, `[::1]:80`, and `http://127.0.0.1:8470`, which tccli sends as its Host."""
    try:
        name = urlsplit(host if "://" in host else f"//{host}").hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False
