"""All routes of the ModelArts API, and the endpoint that authenticates a request and calls its handler.

It works on the raw ASGI path: an address can have doubled or encoded slashes, and clients sign the path as sent.
"""

import uuid
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from turnout import bodies
from turnout.bodies import Sender, read_body
from turnout.dialects.modelarts import errors, unsupported
from turnout.dialects.modelarts.account import iam, quotas, sign, workspaces
from turnout.dialects.modelarts.algorithms import handlers as algorithms
from turnout.dialects.modelarts.catalogue import handlers as catalogue
from turnout.dialects.modelarts.context import Context, Handler, Routes
from turnout.dialects.modelarts.jobs import experiments, tags
from turnout.dialects.modelarts.jobs import handlers as jobs
from turnout.dialects.modelarts.observe import handlers as observe
from turnout.dialects.modelarts.observe import log_handlers
from turnout.dialects.modelarts.search import handlers as search
from turnout.errors import Invalid, TurnoutError
from turnout.service import Caller, calls

ROUTES: Routes = [
    *jobs.ROUTES,
    *observe.ROUTES,
    *log_handlers.ROUTES,
    *tags.ROUTES,
    *algorithms.ROUTES,
    *experiments.ROUTES,
    *workspaces.ROUTES,
    *quotas.ROUTES,
    *catalogue.ROUTES,
    *unsupported.ROUTES,
    *search.ROUTES,
    *iam.ROUTES,
]

BODY_LIMIT = 12 << 20
_READS = ("training-job-searches", "filter", "count", "securitytokens")
"""The last parts of the paths whose POST changes nothing."""
_LOGIN = ("v3", "auth", "tokens")


def owns(path: str) -> bool:
    """Whether a path belongs to this dialect. Others use `/v1` too: only `/v1/…/workspaces` is ours there."""
    match [part for part in path.split("/", 6) if part][:3]:
        case ["v2", *_] | ["v3", "auth" | "projects", *_] | ["v3.0", *_] | ["v1", _, "workspaces"]:
            return True
        case _:
            return False


class _Match(NamedTuple):
    handler: Handler
    parameters: dict[str, str]


class Endpoint:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._table = _RouteTree()
        for method, path, handler in ROUTES:
            full_path = path if path.startswith(("/v1/", "/v3")) else f"/v2/{{project_id}}{path}"
            self._table.add(method, full_path, handler)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = uuid.uuid4().hex
        try:
            response = await self._answer(scope, receive)
        except TurnoutError as error:
            response = errors.response(error)
        except Exception as error:  # noqa: BLE001 (users never see a traceback)
            response = errors.unexpected(request_id, f"{scope['method']} {scope['path']}", error)
        if response is None:
            return
        response.headers["X-Request-Id"] = request_id
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response | None:
        """None if the client disconnected before it sent the whole body."""
        context, headers = self._context, dict(scope["headers"])
        method, raw = scope["method"], scope.get("raw_path") or scope["path"].encode()
        parts = tuple(unquote(part) for part in raw.decode("latin-1").split("/") if part)
        is_login = parts == _LOGIN and method == "POST"
        with context.bodies.open(bodies.STRANGER if is_login else self._sender(headers)) as reservation:
            arrived = scope.get(bodies.ARRIVED, False)
            body = await read_body(
                reservation, headers, receive, BODY_LIMIT, arrived=arrived, late=errors.BAD_JSON
            )
            if body is None:
                return None
            request = Request({**scope, "path_params": {}}, _replay(body, receive))
            if is_login:
                return await iam.login(context, request)
            signed = sign.SignedRequest(method, raw, scope["query_string"], headers, body)
            caller = self._caller(signed, _project(parts))
            calls.identify(caller.key, caller.project, changes=None if _may_change(parts) else False)
            match = self._table.find(method, parts)
            _check(match.parameters)
            request.scope["path_params"] = match.parameters
            return await match.handler(context, request, caller)

    def _sender(self, headers: Mapping[bytes, bytes]) -> Sender:
        """Identifies the sender by the headers alone, before the body is read. Raises Unauthenticated."""
        context = self._context
        if context.settings.no_auth:
            return bodies.known(context.keys.root.project)
        return iam.sender(context.keys, headers, context.clock() / 1e9)

    def _caller(self, request: sign.SignedRequest, project: str) -> Caller:
        context = self._context
        if context.settings.no_auth:
            root = context.keys.root
            return Caller("anyone", iam.check_project(root, project) if project else root.project, root=True)
        return iam.caller_of(context.keys, request, project, context.clock() / 1e9)


class _RouteTree:
    """A tree of path segments. A literal segment has precedence over a parameter."""

    def __init__(self) -> None:
        self._literal: dict[str, _RouteTree] = {}
        self._parameter: _RouteTree | None = None
        self._handlers: dict[str, tuple[Handler, tuple[str, ...]]] = {}

    def add(self, method: str, path: str, handler: Handler) -> None:
        table, names = self, list[str]()
        for part in path.strip("/").split("/"):
            if part.startswith("{"):
                names.append(part[1:-1])
                table._parameter = table = table._parameter or _RouteTree()
            else:
                table = table._literal.setdefault(part, _RouteTree())
        table._handlers[method] = (handler, tuple(names))

    def find(self, method: str, parts: tuple[str, ...]) -> _Match:
        match = self._walk(parts, ())
        if match is None:
            raise TurnoutError(f"The path /{'/'.join(parts)} does not exist.", code=errors.NO_SUCH_PATH)
        handlers, values = match
        if method not in handlers:
            raise TurnoutError(
                f"This address does not support {method}, only {' and '.join(sorted(handlers))}.",
                code=errors.BAD_METHOD,
            )
        handler, names = handlers[method]
        return _Match(handler, dict(zip(names, values, strict=True)))

    def _walk(
        self, parts: tuple[str, ...], values: tuple[str, ...]
    ) -> tuple[Mapping[str, tuple[Handler, tuple[str, ...]]], tuple[str, ...]] | None:
        if not parts:
            return (self._handlers, values) if self._handlers else None
        part, rest = parts[0], parts[1:]
        literal = self._literal.get(part)
        match = literal._walk(rest, values) if literal else None
        if match is None and self._parameter:
            return self._parameter._walk(rest, (*values, part))
        return match


def _may_change(parts: tuple[str, ...]) -> bool:
    """Reports come from programs and become events of their job."""
    return parts[-1:] not in {(last,) for last in _READS} and parts[-2:-1] != ("reports",)


def _project(parts: tuple[str, ...]) -> str:
    """The project in an address. Empty for a placeholder, which `_check` refuses once the caller is authenticated."""
    if len(parts) < 2 or parts[0] not in ("v1", "v2") or _is_placeholder(parts[1]):
        return ""
    return parts[1]


def _check(parameters: Mapping[str, str]) -> None:
    for name, value in parameters.items():
        if _is_placeholder(value):
            raise Invalid(
                f"The address has the placeholder {value}: replace it with the {name}.",
                field=name,
                code=errors.INVALID,
            )
        if "\0" in value or len(value) > 256:
            raise Invalid(
                f"{name} must have at most 256 characters, and no NUL.", field=name, code=errors.INVALID
            )


def _is_placeholder(value: str) -> bool:
    return value.startswith("{") and value.endswith("}")


def _replay(body: bytes, rest: Receive) -> Receive:
    """Gives a body that was read already to a Request object, and then the messages that follow it."""
    read = False

    async def receive() -> Message:
        nonlocal read
        if read:
            return await rest()
        read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
