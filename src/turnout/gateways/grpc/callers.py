"""Authenticates the caller before the message of a call is read."""

import time
from typing import NamedTuple

import msgspec

from turnout.access.peers import same_user
from turnout.errors import Denied, TurnoutError
from turnout.gateways.grpc.connections import Ends
from turnout.gateways.grpc.rest import Answer, Rest
from turnout.gateways.grpc.setup import GatewaySetup
from turnout.gateways.grpc.transcode import RestCall

_KNOWN_SECONDS = 30
_MAX_KNOWN = 1024
_ANY_ADDRESS = ("0.0.0.0", "::")
_WHOAMI = RestCall("GET", "/turnout/v1/whoami", b"")
_LOCATIONS = RestCall("GET", "/v1/projects/default/locations", b"")


class UnknownCaller(TurnoutError):
    """The service did not authenticate the caller. `answer` is its response."""

    def __init__(self, answer: Answer) -> None:
        super().__init__("the service did not authenticate the caller")
        self.answer = answer


class _Whoami(msgspec.Struct):
    project: str = ""


class _Known(NamedTuple):
    project: str
    until: float


class GrpcCallers:
    """Caches the tokens of known callers for a while. The cache only decides whether a message is read: the service
    authenticates each call again.
    """

    def __init__(self, rest: Rest, setup: GatewaySetup) -> None:
        self._rest = rest
        self._setup = setup
        self._known: dict[tuple[str, ...], _Known] = {}

    async def project(self, ends: Ends, authorization: list[str]) -> str:
        """Raises Denied, UnknownCaller and ServiceUnreachable."""
        if self._setup.no_auth:
            if not same_user(*ends, self._setup.operator):
                raise Denied("without auth only the user who runs the service may use it")
            return ""
        key = tuple(authorization)
        known = self._known.get(key)
        if known is None or known.until < time.monotonic():
            known = self._known[key] = _Known(
                await self._fetch_project(authorization), time.monotonic() + _KNOWN_SECONDS
            )
            while len(self._known) > _MAX_KNOWN:
                del self._known[next(iter(self._known))]
        return known.project

    async def _fetch_project(self, authorization: list[str]) -> str:
        answer = await self._rest.send(_WHOAMI, "", authorization)
        if answer.http == 200:
            return msgspec.json.decode(answer.body, type=_Whoami).project
        # This call's error has Google's format.
        raise UnknownCaller(await self._rest.send(_LOCATIONS, "", authorization))


def service_address(ends: Ends, setup: GatewaySetup) -> str:
    """The address of the service as the caller sees it, for links in answers. gRPC does not send it."""
    host = ends.server[0] if setup.host in _ANY_ADDRESS else setup.host
    host = host.removeprefix("::ffff:") if "." in host else host
    port = setup.rest.rpartition(":")[2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
