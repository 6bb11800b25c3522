"""TI-A over HTTP: one path, and always status 200 with a RequestId, as its clients expect.

Spoken to ASGI directly: every call comes through here, and a request object would cost as much as all the rest.
"""

import itertools
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from turnout.access import Keys
from turnout.config import Settings
from turnout.dialects.body import read_body
from turnout.dialects.tia import errors, flat, sign, wire
from turnout.dialects.tia.actions import ALIASES, Actions
from turnout.dialects.tia.decode import from_pairs, json_decoder
from turnout.errors import Invalid, NotFound, TooLarge, TurnoutError, Unauthenticated, Unsupported
from turnout.service import Caller, Jobs, Logs

log = logging.getLogger(__name__)

VERSION = "2018-02-26"
GET_LIMIT = 32 << 10
FORM_LIMIT = 1 << 20
JSON_LIMIT = 10 << 20

NOT_BUILT = frozenset({"CreateModel", "DescribeModel", "ListModels", "DeleteModel", "InstallAgent"})

_encode = msgspec.json.Encoder().encode
_HEADERS = [(b"content-type", b"application/json")]
Page = Callable[[Request], Awaitable[Response]]
"""What a browser gets."""


class Storage(Protocol):
    def check(self, source: str, read_only: bool = False) -> str: ...


def endpoint(
    jobs: Jobs,
    logs: Logs,
    keys: Keys,
    settings: Settings,
    storage: Storage,
    started: float,
    no_auth: bool,
    page: Page,
) -> "Endpoint":
    """What answers on `/`. `started` is when the service started, on the monotonic clock."""
    actions = Actions(jobs, logs, settings, storage.check, started)
    return Endpoint(actions, keys, no_auth, page)


class _Call(NamedTuple):
    """A request as far as it can be read without knowing the action."""

    method: str
    query: bytes
    headers: dict[bytes, bytes]
    body: bytes
    pairs: list[tuple[str, str]] | None
    """The parameters of a query string or form; None for a JSON body."""

    def common(self, header: bytes, name: str) -> str:
        """A parameter that v1 sends among the others, where it is signed, and v3 as a header."""
        for key, value in self.pairs or ():
            if key == name:
                return value
        return self.headers.get(header, b"").decode("latin-1").strip()


class Endpoint:
    def __init__(self, actions: Actions, keys: Keys, no_auth: bool, page: Page) -> None:
        self._keys = keys
        self._no_auth = no_auth
        self._page = page
        # A UUID whose first part is this run's and whose last part counts: unique, and far cheaper than a random one.
        self._run = str(uuid.uuid4())[:23]
        self._count = itertools.count(1)
        self._handlers = actions.handlers()
        self._decoders = {name: json_decoder(kind) for name, (kind, _) in self._handlers.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if _is_browser(scope, headers):
            response = await self._page(Request(scope, receive))
            await response(scope, receive, send)
            return
        request_id = f"{self._run}-{next(self._count):012x}"
        answer = await self._answer(scope, headers, receive, request_id)
        if answer is None:
            return
        body = _encode(wire.Envelope(answer))
        length = (b"content-length", str(len(body)).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, length]})
        await send({"type": "http.response.body", "body": body})

    async def _answer(
        self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, request_id: str
    ) -> wire.Answer | None:
        """None when the client went away in the middle of its request."""
        action = ""
        try:
            known = self._no_auth or sign.names_a_key(self._keys.find, headers)
            call = await _read(scope, headers, receive, JSON_LIMIT if known else FORM_LIMIT)
            if call is None:
                return None
            caller = self._caller(call)
            action = _action(call)
            kind, handler = self._handlers[action]
            request: Any = (
                self._decoders[action](call.body) if call.pairs is None else from_pairs(call.pairs, kind)
            )
            return await handler(caller, request, request_id)
        except TurnoutError as error:
            return _failed(error, action, request_id)
        except Exception:  # clients understand nothing but a proper answer; the log has the traceback
            log.exception("request %s (%s) failed", request_id, action or "no action")
            message = "An internal error occurred; the server's log has the details under this RequestId."
            return wire.ErrorAnswer(request_id, wire.Error(errors.INTERNAL, message))

    def _caller(self, call: _Call) -> Caller:
        if self._no_auth:
            return _as_caller(self._keys.root)
        if call.headers.get(b"authorization", b"").startswith(b"TC3"):
            key = sign.verify_v3(
                self._keys.find, call.method, call.query, call.headers, call.body, time.time()
            )
        elif call.pairs is not None and any(name == "Signature" for name, _ in call.pairs):
            host = call.headers.get(b"host", b"").decode("latin-1").strip()
            key = sign.verify_v1(self._keys.find, call.method, host, call.pairs, time.time())
        else:
            raise Unauthenticated(
                "The request is not signed: it needs an Authorization header (TC3-HMAC-SHA256) or a Signature "
                "parameter (HmacSHA1, HmacSHA256).",
                code=errors.BAD_AUTHORIZATION,
            )
        return _as_caller(key)


def _is_browser(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    return (
        scope["method"] in ("GET", "HEAD")
        and b"text/html" in headers.get(b"accept", b"")
        and b"authorization" not in headers
        and b"x-tc-action" not in headers
        and b"Action=" not in scope["query_string"]
    )


async def _read(scope: Scope, headers: dict[bytes, bytes], receive: Receive, json_limit: int) -> _Call | None:
    method, query = scope["method"], scope["query_string"]
    if method == "GET":
        if len(query) > GET_LIMIT:
            raise TooLarge(f"The request is too large: the query string of a GET may have {GET_LIMIT} bytes.")
        return _Call(method, query, headers, b"", flat.pairs(query))
    if method != "POST":
        raise Unsupported(f"The method is GET or POST, not {method}.", code=errors.BAD_METHOD)
    kind = headers.get(b"content-type", b"application/json").partition(b";")[0].strip().lower()
    if kind not in (b"application/json", b"application/x-www-form-urlencoded"):
        raise Invalid(
            "Content-Type must be application/json or application/x-www-form-urlencoded.",
            code=errors.BAD_REQUEST,
        )
    if kind == b"application/json":
        body = await read_body(headers, receive, json_limit, late=errors.BAD_REQUEST)
        return None if body is None else _Call(method, query, headers, body, None)
    body = await read_body(headers, receive, FORM_LIMIT, late=errors.BAD_REQUEST)
    return None if body is None else _Call(method, query, headers, body, flat.pairs(body))


def _as_caller(key: sign.Key) -> Caller:
    return Caller(key.id, key.project, key.root)


def _action(call: _Call) -> str:
    name = call.common(b"x-tc-action", "Action")
    if not name:
        raise errors.missing("Action")
    action = ALIASES.get(name, name)
    if action in NOT_BUILT:
        raise Unsupported(
            f"{name} is not offered here: this service runs jobs, no models.", code=errors.UNSUPPORTED
        )
    if action not in errors.OF_ACTION:
        raise NotFound(
            f"There is no action {name!r}; there are {', '.join(errors.OF_ACTION)}.",
            code=errors.UNKNOWN_ACTION,
        )
    version = call.common(b"x-tc-version", "Version")
    if not version:
        raise errors.missing("Version")
    if version != VERSION:
        raise NotFound(f"There is no version {version!r}; there is {VERSION}.", code=errors.UNKNOWN_VERSION)
    return action


def _failed(error: TurnoutError, action: str, request_id: str) -> wire.ErrorAnswer:
    return wire.ErrorAnswer(request_id, wire.Error(errors.code_of(error, action), error.message))
