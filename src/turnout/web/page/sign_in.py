"""Sign-in with the id and the secret of a key, sign-out, and tickets for downloads."""

import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from turnout.access import Key, Keys, PageSessions
from turnout.access.page_sessions import COOKIE, HEADER, SESSION_SECONDS
from turnout.errors import Denied, Invalid, TurnoutError, Unauthenticated
from turnout.web.page.files import PREFIX

_LARGEST = 4096
_FAILURES = 10
_FAILURE_SECONDS = 60.0
_ADDRESSES = 10_000

T = TypeVar("T")


class Credentials(msgspec.Struct):
    key: str
    secret: str


class TicketRequest(msgspec.Struct):
    url: str
    """A path of this service with its query."""


class SignIn:
    def __init__(self, keys: Keys, sessions: PageSessions, no_auth: bool) -> None:
        self._keys = keys
        self._sessions = sessions
        self._no_auth = no_auth
        self._failures = _Failures()

    def routes(self) -> list[Route]:
        return [
            Route(PREFIX + "/session", _answered(self.start), methods=["POST"]),
            Route(PREFIX + "/session", _answered(self.show), methods=["GET"]),
            Route(PREFIX + "/session", _answered(self.end), methods=["DELETE"]),
            Route(PREFIX + "/tickets", _answered(self.ticket), methods=["POST"]),
        ]

    async def start(self, request: Request) -> Response:
        sent = await _read(request, Credentials)
        address = request.client.host if request.client else ""
        now = time.monotonic()
        # No await from here to the count: requests that are sent side by side must not all pass.
        if wait := self._failures.wait(address, now):
            raise _TooMany(f"too many wrong secrets from this address: try again in {wait:.0f} seconds")
        try:
            key, session = self._sessions.start(sent.key.strip(), sent.secret.strip(), time.time())
        except Unauthenticated:
            self._failures.add(address, now)
            raise
        answer = _json(_about(key) | {"token": session.token})
        answer.set_cookie(
            COOKIE,
            session.cookie,
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    async def show(self, request: Request) -> Response:
        """Who is signed in. Without authentication everybody is root."""
        if self._no_auth:
            return _json(_about(self._keys.root) | {"key": "", "no_auth": True})
        return _json(_about(self._key(request)))

    async def end(self, request: Request) -> Response:
        self._key(request)
        self._sessions.end(request.cookies[COOKIE], time.time())
        answer = _json({})
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    async def ticket(self, request: Request) -> Response:
        """The address of a download that the browser fetches itself, without the page's header."""
        sent = await _read(request, TicketRequest)
        url = urlsplit(sent.url)
        if url.scheme or url.netloc or not url.path.startswith("/turnout/v1/"):
            raise Invalid("url: must begin with /turnout/v1/", field="url")
        if self._no_auth:
            return _json({"url": sent.url})
        query = urlencode(parse_qsl(url.query, keep_blank_values=True))
        target = f"{unquote(url.path)}?{query}"
        ticket = self._sessions.ticket(self._key(request).id, target, time.time())
        return _json({"url": f"{url.path}?{query}{'&' if query else ''}ticket={ticket}"})

    def _key(self, request: Request) -> Key:
        cookie, token = request.cookies.get(COOKIE, ""), request.headers.get(HEADER, "")
        return self._sessions.check(cookie, token, time.time())


class _Failures:
    """At most ten wrong secrets a minute from an address."""

    def __init__(self) -> None:
        self._times: dict[str, deque[float]] = {}

    def add(self, address: str, now: float) -> None:
        times = self._times.pop(address, deque(maxlen=_FAILURES))
        times.append(now)
        self._times[address] = times
        if len(self._times) > _ADDRESSES:
            del self._times[next(iter(self._times))]

    def wait(self, address: str, now: float) -> float:
        """Seconds until the next attempt; 0: now."""
        times = self._times.get(address, ())
        return max(0.0, times[0] + _FAILURE_SECONDS - now) if len(times) == _FAILURES else 0.0


class _TooMany(Denied):
    pass


def _answered(
    handler: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            _check_origin(request)
            return await handler(request)
        except TurnoutError as error:
            status = _status(error)
            return _json(
                {"error": {"code": type(error).__name__.strip("_"), "message": error.message}}, status
            )

    return endpoint


def _check_origin(request: Request) -> None:
    """Raises Denied for other sites: nobody but the user may sign the browser in."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise Denied("only a page of this service may sign in")


def _status(error: TurnoutError) -> int:
    match error:
        case _TooMany():
            return 429
        case Unauthenticated():
            return 401
        case Denied():
            return 403
        case _:
            return 400


async def _read(request: Request, kind: type[T]) -> T:
    body = b""
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > _LARGEST:
                raise Invalid("the request is too large")
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, ClientDisconnect) as error:
        raise Invalid(f"the request is not valid: {error}") from None


def _about(key: Key) -> dict[str, object]:
    return {"key": key.id, "label": key.label, "project": key.project, "root": key.root, "no_auth": False}


def _json(body: object, status: int = 200) -> Response:
    return Response(
        msgspec.json.encode(body),
        status,
        media_type="application/json",
        headers={"Cache-Control": "no-store"},
    )
