"""ModelArts over HTTP: finds the handler, who asks and what is answered when something goes wrong, in one place.

Spoken to ASGI directly: addresses may hold doubled slashes and encoded ones, and the signature is on them as they came.
"""

import uuid
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from turnout.dialects.body import read_body
from turnout.dialects.modelarts import errors, iam, sign
from turnout.dialects.modelarts.calls import ROUTES
from turnout.dialects.modelarts.house import Handler, House
from turnout.errors import Invalid, TurnoutError
from turnout.service import Caller

BODY_LIMIT = 12 << 20
STRANGERS_LIMIT = 1 << 20
_LOGIN = ("v3", "auth", "tokens")


def owns(path: str) -> bool:
    """Whether a path is for this dialect. `/v1` is shared with others, so there only what is ours by name."""
    match [part for part in path.split("/", 6) if part][:3]:
        case ["v2", *_] | ["v3", "auth" | "projects", *_] | ["v3.0", *_] | ["v1", _, "workspaces"]:
            return True
        case _:
            return False


class _Found(NamedTuple):
    handler: Handler
    parameters: dict[str, str]


class Endpoint:
    def __init__(self, house: House) -> None:
        self._house = house
        self._table = _Table()
        for method, path, handler in ROUTES:
            whole = path if path.startswith(("/v1/", "/v3")) else f"/v2/{{project_id}}{path}"
            self._table.add(method, whole, handler)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = uuid.uuid4().hex
        try:
            response = await self._answer(scope, receive)
        except TurnoutError as error:
            response = errors.answer(error)
        except Exception as error:  # noqa: BLE001 (no traceback may reach a user)
            response = errors.unexpected(request_id, f"{scope['method']} {scope['path']}", error)
        if response is None:
            return
        response.headers["X-Request-Id"] = request_id
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response | None:
        """None when the client went away in the middle of its request."""
        house, headers = self._house, dict(scope["headers"])
        method, raw = scope["method"], scope.get("raw_path") or scope["path"].encode()
        parts = tuple(unquote(part) for part in raw.decode("latin-1").split("/") if part)
        known = house.settings.no_auth or iam.known(house.keys, headers)
        body = await read_body(
            headers, receive, BODY_LIMIT if known else STRANGERS_LIMIT, late=errors.BAD_JSON
        )
        if body is None:
            return None
        request = Request({**scope, "path_params": {}}, _given(body))
        if parts == _LOGIN and method == "POST":
            return await iam.login(house, request)
        signed = sign.Signed(method, raw, scope["query_string"], headers, body)
        caller = self._caller(signed, _project(parts))
        found = self._table.find(method, parts)
        _check(found.parameters)
        request.scope["path_params"] = found.parameters
        return await found.handler(house, request, caller)

    def _caller(self, request: sign.Signed, project: str) -> Caller:
        house = self._house
        if house.settings.no_auth:
            root = house.keys.root
            return Caller("anyone", iam.allowed(root, project) if project else root.project, root=True)
        return iam.caller_of(house.keys, request, project, house.clock() / 1e9)


class _Table:
    """Addresses by their parts; a literal part goes before a parameter."""

    def __init__(self) -> None:
        self._literal: dict[str, _Table] = {}
        self._parameter: _Table | None = None
        self._handlers: dict[str, tuple[Handler, tuple[str, ...]]] = {}

    def add(self, method: str, path: str, handler: Handler) -> None:
        table, names = self, list[str]()
        for part in path.strip("/").split("/"):
            if part.startswith("{"):
                names.append(part[1:-1])
                table._parameter = table = table._parameter or _Table()
            else:
                table = table._literal.setdefault(part, _Table())
        table._handlers[method] = (handler, tuple(names))

    def find(self, method: str, parts: tuple[str, ...]) -> _Found:
        found = self._walk(parts, ())
        if found is None:
            raise TurnoutError(f"There is nothing at /{'/'.join(parts)}.", code=errors.NO_SUCH_PATH)
        handlers, values = found
        if method not in handlers:
            raise TurnoutError(
                f"{method} is not for this address; there is {' and '.join(sorted(handlers))}.",
                code=errors.BAD_METHOD,
            )
        handler, names = handlers[method]
        return _Found(handler, dict(zip(names, values, strict=True)))

    def _walk(
        self, parts: tuple[str, ...], values: tuple[str, ...]
    ) -> tuple[Mapping[str, tuple[Handler, tuple[str, ...]]], tuple[str, ...]] | None:
        if not parts:
            return (self._handlers, values) if self._handlers else None
        part, rest = parts[0], parts[1:]
        literal = self._literal.get(part)
        found = literal._walk(rest, values) if literal else None
        if found is None and self._parameter:
            return self._parameter._walk(rest, (*values, part))
        return found


def _project(parts: tuple[str, ...]) -> str:
    """The project that an address names; none where it was left unfilled, which is told once it is known who asks."""
    if len(parts) < 2 or parts[0] not in ("v1", "v2") or _unfilled(parts[1]):
        return ""
    return parts[1]


def _check(parameters: Mapping[str, str]) -> None:
    for name, value in parameters.items():
        if _unfilled(value):
            raise Invalid(
                f"The address holds {value} itself: put the {name} there.", field=name, code=errors.INVALID
            )
        if "\0" in value or len(value) > 256:
            raise Invalid(f"{name} is not one of this service's.", field=name, code=errors.INVALID)


def _unfilled(value: str) -> bool:
    return value.startswith("{") and value.endswith("}")


def _given(body: bytes) -> Receive:
    """A body that is there already, for a request object to read."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
