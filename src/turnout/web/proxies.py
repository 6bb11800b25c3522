"""Requests that come through a reverse proxy: who made them, and whether over TLS."""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

Networks = Sequence[IPv4Network | IPv6Network]

_SECURE = {"http": "https", "websocket": "wss"}
_PLAIN = {"http": "http", "websocket": "ws"}


class TrustedProxies:
    """Takes `X-Forwarded-For` and `X-Forwarded-Proto` from these addresses, and from no others.

    Behind it, `scope["client"]` is the address of the client and `scope["scheme"]` what the client used. `Host` is
    what the client sent, because signatures cover it: the proxy must pass it on unchanged.
    """

    def __init__(self, app: ASGIApp, networks: Networks) -> None:
        self._app = app
        self._networks = networks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in _PLAIN and scope.get("client") and self._trusts(scope["client"][0]):
            scope = {**scope, **self._forwarded(scope)}
        await self._app(scope, receive, send)

    def _forwarded(self, scope: Scope) -> Scope:
        """What the proxy says about the request. What it does not say stays as it is.

        The port becomes 0: the proxy's own socket must not count as the caller's, even if the address is not known.
        """
        found: Scope = {}
        addresses, protocols = (_listed(scope, name) for name in (b"x-forwarded-for", b"x-forwarded-proto"))
        if addresses or protocols:
            found["client"] = (self._client(addresses) or scope["client"][0], 0)
        protocol = protocols[-1:]
        if protocol in (["https"], ["http"]):
            found["scheme"] = (_SECURE if protocol == ["https"] else _PLAIN)[scope["type"]]
        return found

    def _client(self, addresses: list[str]) -> str:
        """The last address that is not a proxy's: anybody can write what stands before it."""
        client = ""
        for text in reversed(addresses):
            try:
                client = str(ip_address(_without_port(text)))
            except ValueError:
                return client
            if not self._trusts(client):
                return client
        return client

    def _trusts(self, address: str) -> bool:
        try:
            parsed = ip_address(address)
        except ValueError:
            return False
        parsed = getattr(parsed, "ipv4_mapped", None) or parsed
        return any(parsed in network for network in self._networks)


def _without_port(text: str) -> str:
    """Some proxies write `192.0.2.1:5678` or `[2001:db8::1]:5678`."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    address, colon, port = text.partition(":")
    return address if colon and port.isdecimal() else text


def _listed(scope: Scope, header: bytes) -> list[str]:
    values = (value.decode("latin-1") for name, value in scope["headers"] if name == header)
    return [part.strip() for value in values for part in value.split(",")]
