"""A shell in a browser: the page that a link opens once, and the socket that the page talks through.

The page gets two secrets: a cookie, which no script can read, and a word in its text, which is sent to nobody but our
socket. Cookies go to every port of a host, so whoever else listens there may see the one, but never the other.
"""

import asyncio
import contextlib
import hmac
import secrets
from html import escape
from importlib import resources
from string import Template
from urllib.parse import urlsplit

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from turnout.access.tickets import Errand
from turnout.errors import Denied, TurnoutError
from turnout.service import Caller, Jobs, Size, Terminal
from turnout.web.gate import SHELL, Gate

SHELLS = "/turnout/shells"

_COOKIE = "turnout-shell"
_AHEAD = 1 << 18
"""Bytes that may be on their way to a page that has not dealt with them."""
_FILES = {"terminal.js", "screen.js"}
_PATIENCE = 30
"""Seconds that typed text waits for a program that does not read; then it is dropped."""
_ENDED, _REFUSED = 1000, 4403
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class FromPage(msgspec.Struct):
    """A new size, or how many bytes the page has dealt with."""

    columns: int = 0
    rows: int = 0
    seen: int = 0


class Shells:
    def __init__(self, jobs: Jobs, gate: Gate) -> None:
        self._jobs = jobs
        self._gate = gate
        self._words: dict[str, str] = {}
        """The word of each page, by its pass."""

    def routes(self) -> list[BaseRoute]:
        one = SHELLS + "/{project}/{job}/{replica}"
        return [
            Route(SHELLS + "/{file}", _script, methods=["GET"]),
            Route(one, self.page, methods=["GET"]),
            WebSocketRoute(one + "/socket", self.socket),
        ]

    async def page(self, request: Request) -> Response:
        try:
            errand, secret = self._gate.redeem(request.query_params.get("ticket", ""), SHELL)
            _check_place(errand, request)
        except TurnoutError as error:
            return HTMLResponse(_notice(error.message), 403, headers=_HEADERS | _policy(request, False))
        word = secrets.token_urlsafe(32)
        if len(self._words) > 1000:
            self._words = {one: word for one, word in self._words.items() if self._valid(one)}
        self._words[secret] = word
        page = _page("terminal.html").substitute(
            replica=escape(errand.replica), job=errand.job, project=escape(errand.project), word=word
        )
        answer = HTMLResponse(page, headers=_HEADERS | _policy(request, True))
        secure = request.url.scheme == "https"
        answer.set_cookie(
            _COOKIE, secret, path=request.url.path, httponly=True, samesite="strict", secure=secure
        )
        return answer

    async def socket(self, websocket: WebSocket) -> None:
        """`?columns=80&rows=24`. Bytes are what is typed and shown; text from the page is a new size, text to it how
        the shell ended or why there is none.
        """
        try:
            errand = self._admit(websocket)
        except TurnoutError:
            await websocket.close()
            return
        await websocket.accept()
        with contextlib.suppress(WebSocketDisconnect):
            try:
                await self._authenticate(websocket)
                caller = Caller(errand.key, errand.project)
                size = Size(*(_number(websocket, name) for name in ("columns", "rows")))
                terminal = await self._jobs.shell(caller, errand.job, errand.replica, size)
            except TurnoutError as error:
                await websocket.send_text(msgspec.json.encode({"error": error.message}).decode())
                await websocket.close(_REFUSED)
                return
            try:
                await _connect(websocket, terminal)
            finally:
                terminal.close()

    def _admit(self, websocket: WebSocket) -> Errand:
        """Raises Denied."""
        origin = urlsplit(websocket.headers.get("origin", "")).netloc
        if not origin or origin != websocket.headers.get("host", ""):
            raise Denied("a shell is opened by a page of this service only")
        errand = self._gate.show(websocket.cookies.get(_COOKIE, ""), SHELL)
        _check_place(errand, websocket)
        return errand

    async def _authenticate(self, websocket: WebSocket) -> None:
        """The first message is the page's word: in the address it would be seen by whoever keeps logs of those."""
        expected = self._words.get(websocket.cookies.get(_COOKIE, ""), "")
        try:
            async with asyncio.timeout(_PATIENCE):
                message = await websocket.receive()
        except TimeoutError:
            raise Denied("the page did not say who it is") from None
        if message["type"] != "websocket.receive":
            raise WebSocketDisconnect
        said = message.get("text") or ""
        if not expected or not hmac.compare_digest(said.encode(), expected.encode()):
            raise Denied("this page was opened anew in another tab: use that one, or ask for a new link")

    def _valid(self, secret: str) -> bool:
        try:
            self._gate.show(secret, SHELL)
        except Denied:
            return False
        return True


class _Pace:
    """How far the page is behind: a browser takes whatever comes, and would fill its memory with it."""

    def __init__(self) -> None:
        self._sent = self._seen = 0
        self._caught_up = asyncio.Event()

    async def go(self, count: int) -> None:
        """Returns when so much more may be sent."""
        while self._sent - self._seen > _AHEAD:
            self._caught_up.clear()
            await self._caught_up.wait()
        self._sent += count

    def seen(self, total: int) -> None:
        self._seen = max(self._seen, min(total, self._sent))
        self._caught_up.set()


async def _connect(websocket: WebSocket, terminal: Terminal) -> None:
    """Until one side ends."""
    pace = _Pace()
    showing = asyncio.create_task(_show(websocket, terminal, pace))
    typing = asyncio.create_task(_type(websocket, terminal, pace))
    try:
        done, _ = await asyncio.wait((showing, typing), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in (showing, typing):
            task.cancel()
        await asyncio.gather(showing, typing, return_exceptions=True)


async def _show(websocket: WebSocket, terminal: Terminal, pace: _Pace) -> None:
    while data := await terminal.read():
        await pace.go(len(data))
        await websocket.send_bytes(data)
    await websocket.send_text(msgspec.json.encode({"exit": await terminal.code()}).decode())
    await websocket.close(_ENDED)


async def _type(websocket: WebSocket, terminal: Terminal, pace: _Pace) -> None:
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        if message.get("bytes"):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await terminal.write(message["bytes"])
        elif message.get("text"):
            with contextlib.suppress(msgspec.MsgspecError):
                told = msgspec.json.decode(message["text"], type=FromPage)
                if told.seen:
                    pace.seen(told.seen)
                if told.columns and told.rows:
                    terminal.resize(Size(told.columns, told.rows))


def _check_place(errand: Errand, request: HTTPConnection) -> None:
    """What the address says is for people, and must not mislead them."""
    there = tuple(request.path_params[name] for name in ("project", "job", "replica"))
    if there != (errand.project, str(errand.job), errand.replica):
        raise Denied("this link leads to something else: ask for a new one")


def _number(websocket: WebSocket, name: str) -> int:
    text = websocket.query_params.get(name, "")
    usual = {"columns": 80, "rows": 24}[name]
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else usual


async def _script(request: Request) -> Response:
    name = request.path_params["file"]
    if name not in _FILES:
        return Response(status_code=404)
    text = resources.files("turnout.web").joinpath(name).read_bytes()
    return Response(text, media_type="text/javascript", headers={"Cache-Control": "no-cache"})


def _page(name: str) -> Template:
    return Template(resources.files("turnout.web").joinpath(name).read_text())


def _policy(request: Request, script: bool) -> dict[str, str]:
    rules = ["default-src 'none'", "style-src 'unsafe-inline'", "frame-ancestors 'none'", "base-uri 'none'"]
    if script:
        rules += ["script-src 'self'", "connect-src 'self'", "form-action 'none'"]
    return {"Content-Security-Policy": "; ".join(rules)}


def _notice(message: str) -> str:
    return f"<!doctype html><title>Turnout</title><p>{escape(message[:1].upper() + message[1:])}.</p>\n"
