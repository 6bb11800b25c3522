"""The service's own REST API, over connections that are kept."""

import ssl
from typing import NamedTuple

import httpcore

from turnout.doors.grpc.transcode import Call
from turnout.errors import TurnoutError

_CONNECTIONS = 256
_IDLE_SECONDS = 3
"""Less than the service's five: a call is never sent into a connection that it is about to close."""
_CONNECT_SECONDS = 10


class Unreachable(TurnoutError):
    """The service is not there, or went away in the middle of the call."""


class Answer(NamedTuple):
    http: int
    body: bytes


class Rest:
    def __init__(self, base: str, certificate: str) -> None:
        """`certificate`: the one that the service answers with, as PEM."""
        self._base = base
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=_trusting(certificate) if certificate else None,
            max_connections=_CONNECTIONS,
            keepalive_expiry=_IDLE_SECONDS,
        )

    async def send(self, call: Call, host: str, authorization: list[str]) -> Answer:
        """`host`: what the caller knows the service by. Raises Unreachable."""
        headers = [("Host", host), ("Content-Type", "application/json")]
        headers += [("Authorization", one) for one in authorization]
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
            raise Unreachable(f"the service at {self._base} does not answer: {reason}") from None
        return Answer(response.status, response.content)

    async def close(self) -> None:
        await self._pool.aclose()


def _trusting(certificate: str) -> ssl.SSLContext:
    """Trusts this certificate and no other, whoever signed it and whatever names it has: it is our own service's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=certificate)
    return context
