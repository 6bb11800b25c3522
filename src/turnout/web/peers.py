"""The access check of a service without authentication: only programs of the same user on this machine have access.

Other web pages in the user's browser have none.
"""

from hmac import compare_digest
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from turnout.access.peers import GATEWAY_HEADER, same_user

_GATEWAY = GATEWAY_HEADER.lower().encode()
_OWN_PAGES = (b"none", b"same-origin")


class LocalPeersOnly:
    """Checks Host and Origin, which a foreign page in a browser cannot fake, and the user of the peer's socket."""

    def __init__(self, app: ASGIApp, gateway: str = "") -> None:
        """`gateway`: the secret of the gRPC process, which checks the user of its callers' sockets itself."""
        self._app = app
        self._gateway = gateway.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            refusal = refusal_of(scope, self._gateway)
            if refusal and scope["type"] == "websocket":
                await send({"type": "websocket.close"})
                return
            if refusal:
                await PlainTextResponse(refusal + "\n", 403)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def refusal_of(scope: Scope, gateway: bytes = b"") -> str:
    """Why a request is refused; empty if it comes from the user who runs the service."""
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    if len(hosts) != 1 or not _loopback(hosts[0].decode("latin-1")):
        return "without authentication, the service answers only requests to a loopback address"
    headers = dict(scope["headers"])
    origin = headers.get(b"origin", b"").decode("latin-1")
    if (origin and not _loopback(origin)) or headers.get(b"sec-fetch-site", b"none") not in _OWN_PAGES:
        return "without authentication, the service answers no requests from other web pages"
    if gateway and compare_digest(headers.get(_GATEWAY, b""), gateway):
        return ""
    if not same_user(scope["client"], scope["server"]):
        return "without authentication, only the user who runs the service may use it"
    return ""


def _loopback(host: str) -> bool:
    """`127.0.0.1:8470`, `localhost`, `[::1]:80`, and `http://127.0.0.1:8470`, which tccli sends as Host."""
    try:
        name = urlsplit(host if "://" in host else f"//{host}").hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False
