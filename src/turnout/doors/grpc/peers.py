"""Who is at the other end of a call, by its address as gRPC spells it: `ipv4:127.0.0.1:5041`, `ipv6:%5B::1%5D:5041`."""

import socket
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from urllib.parse import unquote

from turnout.access.peers import same_user
from turnout.doors.grpc.orders import Orders

Stranger = Callable[[str], str]
"""Why a peer is not let in; empty if it is."""

_EVERYWHERE = ("0.0.0.0", "::")
_DISCARD = 9


def strangers(orders: Orders) -> Stranger:
    """With auth nobody; without, everybody but programs of the user who runs the service: see `turnout.web.peers`."""
    if not orders.no_auth:
        return lambda _: ""

    def refusal(peer: str) -> str:
        host, port = _address(peer)
        loopback = "::1" if ":" in host else "127.0.0.1"
        ours = loopback if orders.host == "localhost" else orders.host
        if same_user((host, port), (ours, orders.port)):
            return ""
        return "without auth only the user who runs the service may use it"

    return refusal


def seen_from(peer: str, orders: Orders) -> str:
    """What a peer would call the service, for links that it is given: gRPC does not tell what it calls us."""
    host = orders.host
    if host in _EVERYWHERE:
        host = _towards(_address(peer)[0])
    port = orders.rest.rpartition(":")[2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _address(peer: str) -> tuple[str, int]:
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    address = ip_address(host.strip("[]").partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return str(address), int(port)


def _towards(host: str) -> str:
    """The address that this machine has on the way there. Nothing is sent."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, _DISCARD))
        except OSError:
            return socket.gethostname()
        return probe.getsockname()[0]
