"""Records each request: how long it took, by API and result, and in the audit trail who changed what.

Only `TrustedProxies` is outside of it, so that nothing is served without it. A change of a job has its audit line in
the commit of the change; the line of every other change, and of one that is refused, is on disk before the reply is
sent.
"""

import logging
import time
from collections.abc import Callable, Iterator
from hmac import compare_digest

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnout.access.peers import GATEWAY_HEADER, PEER_HEADER
from turnout.errors import TurnoutError
from turnout.histogram import Histogram
from turnout.service import Audit, calls
from turnout.service.calls import ApiCall

_log = logging.getLogger(__name__)

_READS = ("GET", "HEAD", "OPTIONS")
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_GATEWAY, _PEER = GATEWAY_HEADER.lower().encode(), PEER_HEADER.lower().encode()


class RequestTimes:
    """The time until a reply begins, by API and class of status: a fixed number of histograms."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Histogram] = {}

    def observe(self, api: str, result: str, seconds: float) -> None:
        found = self._found.get((api, result))
        if found is None:
            found = self._found[api, result] = Histogram(_BOUNDS)
        found.observe(seconds)

    def lines(self, name: str) -> Iterator[str]:
        for (api, result), found in sorted(self._found.items()):
            yield from found.lines(name, f'api="{api}",status="{result}"')


class Recorder:
    def __init__(
        self,
        app: ASGIApp,
        times: RequestTimes,
        audit: Audit,
        name_of: Callable[[str], str],
        gateway: str = "",
    ) -> None:
        """`name_of`: the name of a key's owner in the audit trail. `gateway`: the secret of the gRPC process, which
        passes on where its calls come from.
        """
        self._app = app
        self._times = times
        self._audit = audit
        self._name_of = name_of
        self._gateway = gateway.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope.get("method", "GET")
        name = f"{method} {scope['path']}" if scope["type"] == "http" else f"open {scope.get('path', '')}"
        call = ApiCall("web", name, self._peer(scope), changes=method not in _READS)
        began = time.perf_counter()

        async def recorded(message: Message) -> None:
            if message["type"] == "http.response.start":
                status: int = message["status"]
                if not call.waits:
                    self._times.observe(call.api, _result(call, status), time.perf_counter() - began)
                if call.changes and call.key and (call.code or not call.recorded):
                    await self._record(call, status)
            await send(message)

        token = calls.begin(call)
        try:
            await self._app(scope, receive, recorded)
        finally:
            calls.end(token)

    async def _record(self, call: ApiCall, status: int) -> None:
        try:
            await self._audit.add(call.line(self._name_of(call.key), status))
        except TurnoutError as error:  # the change has happened, and its caller must be told
            _log.error("the audit trail lacks %s by %s: %s", call.name, call.key, error.message)

    def _peer(self, scope: Scope) -> str:
        headers = scope.get("headers", ())
        for name, value in headers:
            if name == _GATEWAY and self._gateway and compare_digest(value, self._gateway):
                return dict(headers).get(_PEER, b"").decode("latin-1")[:64]
        return (scope.get("client") or ("",))[0]


def _result(call: ApiCall, status: int) -> str:
    """The class of status. TI-A answers 200 to every request, so its error code decides."""
    if status == 200 and call.code:
        return "5xx" if call.internal else "4xx"
    return f"{status // 100}xx"
