"""A shell in a browser: the page that a link opens once, and the WebSocket of the page.

The page gets two secrets: a cookie, which no script can read, and a page token, which it sends only to our WebSocket.
Browsers send cookies to every port of a host, so another server on the host may see the cookie, but never the token.
"""

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from html import escape
from string import Template
from urllib.parse import urlsplit

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from turnout.access.tickets import Grant
from turnout.errors import Denied, TurnoutError
from turnout.service import Caller, Jobs, Size, Terminal
from turnout.web.browser_access import SHELL, BrowserAccess, wrong_link
from turnout.web.page.files import PageFiles

SHELLS = "/turnout/shells"

_COOKIE = "turnout-shell"
_WINDOW = 1 << 18
"""The limit for bytes that were sent to a page and are not acknowledged yet."""
_NO_PARTS = "the parts of the page are missing: run `make setup` where npm's registry can be reached"
_WRITE_SECONDS = 30
"""Seconds that input waits for a program that does not read; then it is dropped."""
_REPORT_SECONDS = 2
"""How long after the end of a shell to wait for a report that its replica has ended."""
_KILLED = 137
_ENDED, _REFUSED = 1000, 4403
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
}


WhyKilled = Callable[[], Awaitable[str]]


class FromPage(msgspec.Struct):
    """A new size, or the number of bytes that the page has processed."""

    columns: int = 0
    rows: int = 0
    seen: int = 0


class ShellPages:
    def __init__(self, jobs: Jobs, browser_access: BrowserAccess, files: PageFiles) -> None:
        self._jobs = jobs
        self._access = browser_access
        self._files = files
        self._page_tokens: dict[str, str] = {}
        """The page token of each pass."""

    def routes(self) -> list[BaseRoute]:
        replica_path = SHELLS + "/{project}/{job}/{replica}"
        return [
            Route(replica_path, self.page, methods=["GET"]),
            WebSocketRoute(replica_path + "/socket", self.socket),
        ]

    async def page(self, request: Request) -> Response:
        files = await self._files.get()
        if files is None:
            return HTMLResponse(_notice(_NO_PARTS), 503, headers=_HEADERS | _policy())
        try:
            grant, secret = self._access.redeem(request.query_params.get("ticket", ""), SHELL)
            _check_path(grant, request)
        except TurnoutError as error:
            return HTMLResponse(_notice(error.message), 403, headers=_HEADERS | _policy())
        page_token = secrets.token_urlsafe(32)
        if len(self._page_tokens) > 1000:
            self._page_tokens = {
                known: token for known, token in self._page_tokens.items() if self._valid(known)
            }
        self._page_tokens[secret] = page_token
        page = Template(files.terminal).substitute(
            replica=escape(grant.replica),
            job=grant.job,
            project=escape(grant.project),
            page_token=page_token,
            base=files.base,
            import_map=files.import_map,
        )
        answer = HTMLResponse(page, headers=_HEADERS | _policy(files.script_source))
        secure = request.url.scheme == "https"
        answer.set_cookie(
            _COOKIE, secret, path=request.url.path, httponly=True, samesite="strict", secure=secure
        )
        return answer

    async def socket(self, websocket: WebSocket) -> None:
        """`?columns=80&rows=24`. Binary messages are input and output. Text from the page is a FromPage; text to the
        page is the exit code of the shell, with the reason if its replica ended, or an error.
        """
        try:
            grant = self._admit(websocket)
        except TurnoutError:
            await websocket.close()
            return
        await websocket.accept()
        with contextlib.suppress(WebSocketDisconnect):
            try:
                await self._authenticate(websocket)
                caller = Caller(grant.key, grant.project)
                size = Size(*(_number(websocket, name) for name in ("columns", "rows")))
                terminal = await self._jobs.shell(caller, grant.job, grant.replica, size)
            except TurnoutError as error:
                await websocket.send_text(msgspec.json.encode({"error": error.message}).decode())
                await websocket.close(_REFUSED)
                return
            try:
                with self._access.watch(grant) as revoked:
                    why = partial(self._jobs.shell_ended, caller, grant.job, grant.replica, _REPORT_SECONDS)
                    await _connect(websocket, terminal, revoked, why)
            finally:
                terminal.close()

    def _admit(self, websocket: WebSocket) -> Grant:
        """Raises Denied."""
        origin = urlsplit(websocket.headers.get("origin", "")).netloc
        if not origin or origin != websocket.headers.get("host", ""):
            raise Denied("only a page of this service can open a shell")
        grant = self._access.show(websocket.cookies.get(_COOKIE, ""), SHELL)
        _check_path(grant, websocket)
        return grant

    async def _authenticate(self, websocket: WebSocket) -> None:
        """The first message is the page token; in the URL it would appear in access logs."""
        expected = self._page_tokens.get(websocket.cookies.get(_COOKIE, ""), "")
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                message = await websocket.receive()
        except TimeoutError:
            raise Denied("the page did not send its token") from None
        if message["type"] != "websocket.receive":
            raise WebSocketDisconnect
        received = message.get("text") or ""
        if not expected or not hmac.compare_digest(received.encode(), expected.encode()):
            raise Denied("this page was opened again in another tab: use that one, or ask for a new link")

    def _valid(self, secret: str) -> bool:
        try:
            self._access.show(secret, SHELL)
        except Denied:
            return False
        return True


class _FlowControl:
    """Limits the unacknowledged output: a browser would buffer everything in memory."""

    def __init__(self) -> None:
        self._sent = self._seen = 0
        self._caught_up = asyncio.Event()

    async def go(self, count: int) -> None:
        """Wait until `count` more bytes may be sent."""
        while self._sent - self._seen > _WINDOW:
            self._caught_up.clear()
            await self._caught_up.wait()
        self._sent += count

    def seen(self, total: int) -> None:
        self._seen = max(self._seen, min(total, self._sent))
        self._caught_up.set()


async def _connect(
    websocket: WebSocket, terminal: Terminal, revoked: asyncio.Event, why_killed: WhyKilled
) -> None:
    """Runs until one side ends, or the key that requested the link is revoked."""
    flow = _FlowControl()
    revoked_task = asyncio.create_task(revoked.wait())
    output_task = asyncio.create_task(_send_output(websocket, terminal, flow, why_killed))
    input_task = asyncio.create_task(_receive_input(websocket, terminal, flow))
    try:
        done, _ = await asyncio.wait(
            (output_task, input_task, revoked_task), return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            task.result()
    finally:
        for task in (output_task, input_task, revoked_task):
            task.cancel()
        await asyncio.gather(output_task, input_task, revoked_task, return_exceptions=True)
    if revoked.is_set():
        await websocket.send_text(msgspec.json.encode({"error": "the key was revoked"}).decode())
        await websocket.close(_REFUSED)


async def _send_output(
    websocket: WebSocket, terminal: Terminal, flow: _FlowControl, why_killed: WhyKilled
) -> None:
    while data := await terminal.read():
        await flow.go(len(data))
        await websocket.send_bytes(data)
    code = await terminal.code()
    why = await why_killed() if code in (None, _KILLED) else ""
    last = {"exit": code} | ({"reason": why} if why else {})
    await websocket.send_text(msgspec.json.encode(last).decode())
    await websocket.close(_ENDED)


async def _receive_input(websocket: WebSocket, terminal: Terminal, flow: _FlowControl) -> None:
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        if message.get("bytes"):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_WRITE_SECONDS):
                    await terminal.write(message["bytes"])
        elif message.get("text"):
            with contextlib.suppress(msgspec.MsgspecError):
                update = msgspec.json.decode(message["text"], type=FromPage)
                if update.seen:
                    flow.seen(update.seen)
                if update.columns and update.rows:
                    terminal.resize(Size(update.columns, update.rows))


def _check_path(grant: Grant, request: HTTPConnection) -> None:
    """Raises Denied if the path does not match the grant. The ticket alone gives access; the path is for people."""
    named = tuple(request.path_params[name] for name in ("project", "job", "replica"))
    if named != (grant.project, str(grant.job), grant.replica):
        raise wrong_link()


def _number(websocket: WebSocket, name: str) -> int:
    text = websocket.query_params.get(name, "")
    default = {"columns": 80, "rows": 24}[name]
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else default


def _policy(script_source: str = "") -> dict[str, str]:
    # xterm.js makes style elements.
    rules = ["default-src 'none'", "style-src 'self' 'unsafe-inline'", "img-src 'self'"]
    rules += ["frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"]
    if script_source:
        rules += [script_source, "connect-src 'self'"]
    return {"Content-Security-Policy": "; ".join(rules)}


def _notice(message: str) -> str:
    return f"<!doctype html><title>Turnout</title><p>{escape(message[:1].upper() + message[1:])}.</p>\n"
