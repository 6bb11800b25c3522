"""What a reverse proxy says about a request is believed only from its address."""

from ipaddress import ip_network
from typing import Any

import pytest

from turnout.web import TrustedProxies

PROXY, CLIENT, OTHER = "10.0.0.1", "203.0.113.9", "198.51.100.7"


async def seen(client: str, *headers: tuple[str, str], kind: str = "http") -> tuple[str, str]:
    """(address, scheme) of the request behind the proxy."""
    found: dict[str, Any] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        found.update(scope)

    scope = {
        "type": kind,
        "scheme": {"http": "http", "websocket": "ws"}[kind],
        "client": (client, 4711),
        "headers": [(name.encode(), value.encode()) for name, value in headers],
    }
    networks = [ip_network("10.0.0.0/24"), ip_network("::1")]
    await TrustedProxies(app, networks)(scope, lambda: None, lambda _: None)  # type: ignore[arg-type]
    forwarded = client != OTHER and bool(headers)
    assert found["client"][1] == (0 if forwarded else 4711), "the proxy's socket is not the caller's"
    return found["client"][0], found["scheme"]


FOR, PROTO = "x-forwarded-for", "x-forwarded-proto"


@pytest.mark.parametrize(
    ("client", "headers", "expected"),
    [
        (PROXY, [(FOR, CLIENT), (PROTO, "https")], (CLIENT, "https")),
        ("::ffff:10.0.0.1", [(FOR, CLIENT)], (CLIENT, "http")),
        ("::1", [(FOR, "2001:db8::1"), (PROTO, "https")], ("2001:db8::1", "https")),
        (PROXY, [(FOR, f"{CLIENT}:5678")], (CLIENT, "http")),
        (PROXY, [(FOR, "[2001:db8::1]:5678")], ("2001:db8::1", "http")),
        (PROXY, [(FOR, "[2001:db8::1]")], ("2001:db8::1", "http")),
        # Anybody can send the header to the proxy, which adds what it sees at the end.
        (PROXY, [(FOR, f"{OTHER}, {CLIENT}")], (CLIENT, "http")),
        (PROXY, [(FOR, OTHER), (FOR, CLIENT)], (CLIENT, "http")),
        (PROXY, [(FOR, f"{OTHER}, {CLIENT}, 10.0.0.2")], (CLIENT, "http")),
        (PROXY, [(FOR, "<script>, 10.0.0.2")], ("10.0.0.2", "http")),
        (PROXY, [(FOR, "unknown"), (PROTO, "gopher")], (PROXY, "http")),
        (PROXY, [], (PROXY, "http")),
        # Nobody else is believed.
        (OTHER, [(FOR, CLIENT), (PROTO, "https")], (OTHER, "http")),
    ],
)
async def test_the_client_is_the_last_address_that_is_no_proxy(client, headers, expected):
    assert await seen(client, *headers) == expected


async def test_a_websocket_over_tls():
    assert await seen(PROXY, (PROTO, "https"), kind="websocket") == (PROXY, "wss")
