"""A client of the service's REST API that keeps its connections open."""

import ssl
from typing import NamedTuple

import httpcore

from turnout.access.peers import GATEWAY_HEADER, PEER_HEADER
from turnout.errors import TurnoutError
from turnout.gateways.grpc.transcode import RestCall

_CONNECTIONS = 256
_IDLE_SECONDS = 3
"""Less than the five seconds after which the service closes idle connections."""
_CONNECT_SECONDS = 10


class ServiceUnreachable(TurnoutError):
    """The service cannot be reached, or ended during the call."""


class Answer(NamedTuple):
    http: int
    body: bytes


class Rest:
    def __init__(self, base: str, certificate: str, secret: str = "") -> None:
        """`certificate`: the service's own, as PEM. `secret`: proves to the service that this process sends a call."""
        self._base = base
        self._own = [(GATEWAY_HEADER, secret)] if secret else []
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=_trusting(certificate) if certificate else None,
            max_connections=_CONNECTIONS,
            keepalive_expiry=_IDLE_SECONDS,
        )

    async def send(self, call: RestCall, host: str, authorization: list[str], peer: str = "") -> Answer:
        """`host`: the address by which the caller reached the service, or empty. `peer`: the caller's own address.

        Raises ServiceUnreachable.
        """
        headers = [
            ("Host", host or self._base.partition("//")[2]),
            ("Content-Type", "application/json"),
            *self._own,
            (PEER_HEADER, peer),
        ]
        headers += [("Authorization", value) for value in authorization]
        try:
            response = await self._pool.request(
                call.verb,
                self._base + call.target,
                headers=headers,
                content=call.body or None,
                extensions={"timeout": {"connect": _CONNECT_SECONDS}},
            )
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            reason = str(error) or type(error).__name__
            raise ServiceUnreachable(f"the service at {self._base} does not answer: {reason}") from None
        return Answer(response.status, response.content)

    async def close(self) -> None:
        await self._pool.aclose()


def _trusting(certificate: str) -> ssl.SSLContext:
    """Trusts only this certificate, the service's own, regardless of its issuer and names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=certificate)
    return context
