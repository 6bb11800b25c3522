"""TI-A over HTTP: one path, and always status 200 with a RequestId, as its clients expect.

An ASGI application without Starlette's Request, which would cost as much as the rest of a call.
"""

import itertools
import logging
import time
import uuid
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from turnout import bodies
from turnout.access import may_use
from turnout.bodies import Reservation, Sender, read_body
from turnout.dialects import Context, Conversion
from turnout.dialects.tia import errors, form_parameters, sign, translate, wire
from turnout.dialects.tia.actions import ALIASES, Actions
from turnout.dialects.tia.convert import convert
from turnout.dialects.tia.decode import from_pairs, json_decoder
from turnout.errors import Invalid, NotFound, TooLarge, TurnoutError, Unauthenticated, Unsupported
from turnout.job import Job
from turnout.job.portable import Portable
from turnout.service import Caller, calls

log = logging.getLogger(__name__)

VERSION = "2018-02-26"
GET_LIMIT = 32 << 10
FORM_LIMIT = 1 << 20
JSON_LIMIT = 10 << 20

UNSUPPORTED_ACTIONS = frozenset({"CreateModel", "DescribeModel", "ListModels", "DeleteModel", "InstallAgent"})

_CHANGES = frozenset({"CreateJob", "DeleteJob"})

_encode = msgspec.json.Encoder().encode
_HEADERS = [(b"content-type", b"application/json")]


class _Call(NamedTuple):
    """A request, parsed as far as possible without the action."""

    method: str
    query: bytes
    headers: dict[bytes, bytes]
    body: bytes
    pairs: list[tuple[str, str]] | None
    """The parameters of a query string or form; None for a JSON body."""

    @property
    def project(self) -> str:
        """The project in which root acts; empty for its own. `tictl --project` sends this header of Turnout's own."""
        return self.headers.get(b"x-turnout-project", b"").decode("latin-1").strip()

    def common_parameter(self, header: bytes, name: str) -> str:
        """A parameter that signature v1 sends with the others and v3 sends as a header."""
        for key, value in self.pairs or ():
            if key == name:
                return value
        return self.headers.get(header, b"").decode("latin-1").strip()


class Tia:
    name = translate.DIALECT
    make_trial_job = None
    conversion = Conversion(Portable, convert)

    def __init__(self, context: Context) -> None:
        self._keys = context.keys
        self._bodies = context.bodies
        self._no_auth = context.settings.no_auth
        self._home_page = context.home_page
        # A UUID that begins with a random part for this process and ends with a counter: cheaper than a random UUID.
        self._id_prefix = str(uuid.uuid4())[:23]
        self._count = itertools.count(1)
        self._actions = Actions(context)
        self._handlers = self._actions.handlers()
        self._create_decoder = json_decoder(wire.CreateJob)
        self._decoders = {name: json_decoder(kind) for name, (kind, _) in self._handlers.items()}

    async def run(self) -> None:
        """There is nothing to do between requests."""

    def owns(self, scope: Scope) -> bool:
        return scope["path"] == "/"

    async def submit(self, caller: Caller, body: bytes, location: str) -> Job:
        return await self._actions.submit(caller, self._create_decoder(body))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if _is_person(scope, headers):
            response = await self._home_page(Request(scope, receive))
            await response(scope, receive, send)
            return
        request_id = f"{self._id_prefix}-{next(self._count):012x}"
        response = await self._respond(scope, headers, receive, request_id)
        if response is None:
            return
        body = _encode(wire.Envelope(response))
        length = (b"content-length", str(len(body)).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, length]})
        await send({"type": "http.response.body", "body": body})

    async def _respond(
        self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, request_id: str
    ) -> wire.Response | None:
        """None if the client disconnected before the end of its request."""
        action = ""
        try:
            signature = self._signature(headers)
            with self._bodies.open(self._sender(signature)) as reservation:
                call = await _read(scope, headers, receive, reservation)
                if call is None:
                    return None
                caller = self._caller(call, signature)
                action = _action(call)
                calls.identify(caller.key, caller.project, changes=action in _CHANGES, name=action)
                kind, handler = self._handlers[action]
                request: Any = (
                    self._decoders[action](call.body) if call.pairs is None else from_pairs(call.pairs, kind)
                )
                return await handler(caller, request, request_id)
        except TurnoutError as error:
            return _error_response(error, action, request_id)
        except Exception:  # clients need a well-formed response; the log has the traceback
            log.exception("request %s (%s) failed", request_id, action or "no action")
            calls.refused(errors.INTERNAL, internal=True)
            message = "An internal error occurred; the server's log has the details under this RequestId."
            return wire.ErrorResponse(request_id, wire.Error(errors.INTERNAL, message))

    def _signature(self, headers: dict[bytes, bytes]) -> sign.V3Signature | None:
        """The signature in the headers; None if there is none or none is needed. Raises Unauthenticated."""
        if self._no_auth or not headers.get(b"authorization", b"").startswith(b"TC3"):
            return None
        return sign.read_v3(self._keys.find, headers, time.time())

    def _sender(self, signature: sign.V3Signature | None) -> Sender:
        """Identifies the sender by the headers alone, before the body is read."""
        if self._no_auth:
            return bodies.known(self._keys.root.project)
        return bodies.claimed(signature.key.id) if signature else bodies.STRANGER

    def _caller(self, call: _Call, signature: sign.V3Signature | None) -> Caller:
        if self._no_auth:
            return _as_caller(self._keys.root, call.project)
        if signature:
            sign.find_key(self._keys.find, signature.key.id)  # not revoked while the body arrived
            key = sign.verify_v3(signature, call.method, call.query, call.headers, call.body)
        elif call.pairs is not None and any(name == "Signature" for name, _ in call.pairs):
            host = call.headers.get(b"host", b"").decode("latin-1").strip()
            key = sign.verify_v1(self._keys.find, call.method, host, call.pairs, time.time())
        else:
            raise Unauthenticated(
                "The request is not signed: it needs an Authorization header (TC3-HMAC-SHA256) or a Signature "
                "parameter (HmacSHA1, HmacSHA256).",
                code=errors.BAD_AUTHORIZATION,
            )
        return _as_caller(key, call.project)


def _is_person(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Whether a person sent the request, with a browser or `curl /`, and not a client of the API."""
    return (
        scope["method"] in ("GET", "HEAD")
        and (not scope["query_string"] or b"text/html" in headers.get(b"accept", b""))
        and b"authorization" not in headers
        and b"x-tc-action" not in headers
        and b"Action=" not in scope["query_string"]
    )


async def _read(
    scope: Scope, headers: dict[bytes, bytes], receive: Receive, reservation: Reservation
) -> _Call | None:
    method, query = scope["method"], scope["query_string"]
    if method == "GET":
        if len(query) > GET_LIMIT:
            raise TooLarge(f"The request is too large: the query string of a GET may have {GET_LIMIT} bytes.")
        return _Call(method, query, headers, b"", form_parameters.pairs(query))
    if method != "POST":
        raise Unsupported(f"The method is GET or POST, not {method}.", code=errors.BAD_METHOD)
    kind = headers.get(b"content-type", b"application/json").partition(b";")[0].strip().lower()
    if kind not in (b"application/json", b"application/x-www-form-urlencoded"):
        raise Invalid(
            "Content-Type must be application/json or application/x-www-form-urlencoded.",
            code=errors.BAD_REQUEST,
        )
    arrived = scope.get(bodies.ARRIVED, False)
    if kind == b"application/json":
        body = await read_body(
            reservation, headers, receive, JSON_LIMIT, arrived=arrived, late=errors.BAD_REQUEST
        )
        return None if body is None else _Call(method, query, headers, body, None)
    body = await read_body(
        reservation, headers, receive, FORM_LIMIT, arrived=arrived, late=errors.BAD_REQUEST
    )
    return None if body is None else _Call(method, query, headers, body, form_parameters.pairs(body))


def _as_caller(key: sign.Key, project: str) -> Caller:
    """Raises Denied if the request names a project in which the key may not act."""
    if project:
        may_use(key, project)
    return Caller(key.id, project or key.project, key.root)


def _action(call: _Call) -> str:
    name = call.common_parameter(b"x-tc-action", "Action")
    if not name:
        raise errors.missing("Action")
    action = ALIASES.get(name, name)
    if action in UNSUPPORTED_ACTIONS:
        raise Unsupported(
            f"{name} is not supported: this service runs jobs and does not serve models.",
            code=errors.UNSUPPORTED,
        )
    if action not in errors.ACTION_CODES:
        raise NotFound(
            f"There is no action {name!r}; use one of {', '.join(errors.ACTION_CODES)}.",
            code=errors.UNKNOWN_ACTION,
        )
    version = call.common_parameter(b"x-tc-version", "Version")
    if not version:
        raise errors.missing("Version")
    if version != VERSION:
        raise NotFound(f"There is no version {version!r}; use {VERSION}.", code=errors.UNKNOWN_VERSION)
    return action


def _error_response(error: TurnoutError, action: str, request_id: str) -> wire.ErrorResponse:
    code = errors.code_of(error, action)
    calls.refused(code, internal=code == errors.INTERNAL)
    return wire.ErrorResponse(request_id, wire.Error(code, error.message))
