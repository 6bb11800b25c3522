"""Without auth, only programs of the same user on this machine are let in, and no web page of somebody else's."""

import os
import sys
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_OWN_PAGES = (b"none", b"same-origin")


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
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    if len(hosts) != 1 or not _loopback(hosts[0].decode("latin-1")):
        return "without auth only requests to a loopback address are answered"
    headers = dict(scope["headers"])
    origin = headers.get(b"origin", b"").decode("latin-1")
    if (origin and not _loopback(origin)) or headers.get(b"sec-fetch-site", b"none") not in _OWN_PAGES:
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
    """The kernel knows who owns the other end of a connection from this machine to itself.

    A socket that its process has closed already belongs to nobody, which the tables show as root: it has no inode.
    """
    theirs, ours = _spelt(*client), _spelt(*server)
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, remote, _, _, _, _, uid, _, inode, *_ = line.split()
            if local in theirs and remote in ours and inode != "0":
                return int(uid) == os.getuid()
    return False


def _spelt(host: str, port: int) -> set[str]:
    """An address as the tables have it: words of four bytes, in the machine's own order; IPv4 also within IPv6."""
    address = ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    packed = [address.packed, *([mapped.packed] if mapped else [])]
    packed += [bytes(10) + b"\xff\xff" + one for one in packed if len(one) == 4]
    words = lambda one: (one[at : at + 4] for at in range(0, len(one), 4))  # noqa: E731
    in_order = (
        b"".join(word[:: 1 if sys.byteorder == "big" else -1] for word in words(one)) for one in packed
    )
    return {f"{one.hex().upper()}:{port:04X}" for one in in_order}
