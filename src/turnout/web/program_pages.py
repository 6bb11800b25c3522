"""Forwards a port of the service to the page of a job's program. Each job has a port of its own.

For a browser, a port of its own makes it a separate site: its scripts reach neither this service nor the pages of
other jobs, and it may use any path. The service reads only the head of a request, to check access and to remove its own
cookie. Everything else passes unchanged, WebSockets too. Each connection carries one request.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from html import escape
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from turnout.errors import Denied, TurnoutError
from turnout.service import Caller, Jobs
from turnout.web.browser_access import PROGRAM_PAGE, BrowserAccess, wrong_link
from turnout.web.protocol import STALLED_SECONDS

_log = logging.getLogger(__name__)

TICKET = "turnout-ticket"

_HEAD_BYTES = 96 << 10
_HEAD_SECONDS = 30
_PIECE = 1 << 16
_COOKIES = "turnout-"
_SAME_SITE = (b"none", b"same-origin")
_FOREVER = 1e9


class Head(NamedTuple):
    line: bytes
    headers: list[tuple[bytes, bytes]]

    def get(self, name: bytes) -> bytes:
        return next((value for key, value in self.headers if key.lower() == name), b"")

    @property
    def path(self) -> str:
        parts = self.line.split(b" ")
        return parts[1].decode("latin-1") if len(parts) == 3 else ""

    @property
    def upgrades(self) -> bool:
        return b"upgrade" in self.get(b"connection").lower()


class ProgramPages:
    """`files`: the certificate and its key, if TLS is on."""

    def __init__(
        self, jobs: Jobs, browser_access: BrowserAccess, host: str, files: tuple[Path, Path] | None = None
    ) -> None:
        self.scheme = "https" if files else "http"
        self._jobs = jobs
        self._access = browser_access
        self._host = host
        self._files = files
        self._open: dict[int, asyncio.Task[asyncio.Server]] = {}
        self._watching: set[asyncio.Task[None]] = set()

    async def open(self, project: str, job_id: int) -> int:
        if job_id not in self._open:
            self._open[job_id] = asyncio.create_task(self._listen(project, job_id))
        server = await asyncio.shield(self._open[job_id])
        return server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        for task in [*self._watching, *self._open.values()]:
            task.cancel()
        await asyncio.gather(*self._watching, *self._open.values(), return_exceptions=True)

    async def _listen(self, project: str, job_id: int) -> asyncio.Server:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._connected(job_id, reader, writer)

        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if self._files else None
        if context and self._files:
            context.load_cert_chain(*self._files)
        server = await asyncio.start_server(connected, self._host, 0, limit=_HEAD_BYTES, ssl=context)
        watching = asyncio.create_task(self._close_with(Caller("program page", project), job_id, server))
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)
        return server

    async def _close_with(self, caller: Caller, job_id: int, server: asyncio.Server) -> None:
        """Closes the server when the job has ended or was deleted."""
        try:
            with contextlib.suppress(TurnoutError):
                await self._jobs.wait(caller, job_id, lambda job: not job.live, _FOREVER)
        finally:
            self._open.pop(job_id, None)
            server.close()

    async def _connected(
        self, job_id: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            head = await _read_head(reader)
            await self._answer(job_id, head, reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # the client has disconnected, or does not speak HTTP
        except TurnoutError as error:
            _respond(writer, "403 Forbidden", error.message)
        except Exception:  # noqa: BLE001 (nothing awaits this task, so it is logged here)
            _log.exception("a connection to the page of a program failed")
        finally:
            await _close(writer)

    async def _answer(
        self, job_id: int, head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        address = urlsplit(head.path)
        ticket = parse_qs(address.query).get(TICKET, [""])[0]
        if ticket:
            grant, secret = self._access.redeem(ticket, PROGRAM_PAGE)
            _check(grant.job == job_id)
            cookie = f"{_COOKIES}{job_id}={secret}; Path=/; HttpOnly; SameSite=Lax"
            _respond(
                writer, "303 See Other", "", ("Location: " + (address.path or "/"), f"Set-Cookie: {cookie}")
            )
            return
        _check_origin(head)
        grant = self._access.show(_cookies(head).get(f"{_COOKIES}{job_id}", ""), PROGRAM_PAGE)
        _check(grant.job == job_id)
        connection = await self._jobs.program_page(Caller(grant.key, grant.project), job_id)
        if connection is None:
            message = "the program has not opened a port yet; this page reloads by itself"
            _respond(writer, "503 Service Unavailable", message, ("Retry-After: 2", "Refresh: 2"))
            return
        async with _streams(connection) as (their_reader, their_writer):
            their_writer.write(_forwarded(head))
            splicing = asyncio.create_task(_splice(reader, writer, their_reader, their_writer))
            with self._access.watch(grant) as revoked:
                await until(revoked, splicing)


async def until(event: asyncio.Event, task: "asyncio.Task[None]") -> None:
    """Wait for the task, or cancel it when the event is set."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        task.cancel()
        await asyncio.gather(task, waiting, return_exceptions=True)


async def _read_head(reader: asyncio.StreamReader) -> Head:
    async with asyncio.timeout(_HEAD_SECONDS):
        raw = await reader.readuntil(b"\r\n\r\n")
    line, *rest = raw[:-4].split(b"\r\n")
    headers: list[tuple[bytes, bytes]] = []
    for entry in rest:
        name, colon, value = entry.partition(b":")
        if not colon or not name or name != name.strip():
            raise ValueError("not a header")
        headers.append((name, value.strip()))
    return Head(line, headers)


def _check(matches: bool) -> None:
    if not matches:
        raise wrong_link()


def _check_origin(head: Head) -> None:
    """Raises Denied for requests from other sites, except plain links to this page."""
    origin = urlsplit(head.get(b"origin").decode("latin-1")).netloc
    if head.get(b"origin") and origin != head.get(b"host").decode("latin-1"):
        raise Denied("other sites cannot use this page")
    navigates = head.line.startswith(b"GET ") and head.get(b"sec-fetch-mode") == b"navigate"
    if head.get(b"sec-fetch-site") not in (b"", *_SAME_SITE) and not navigates:
        raise Denied("other sites cannot use this page")


def _cookies(head: Head) -> dict[str, str]:
    try:
        found = SimpleCookie(head.get(b"cookie").decode("latin-1"))
    except CookieError:
        return {}
    return {name: morsel.value for name, morsel in found.items()}


def _forwarded(head: Head) -> bytes:
    """The head as received, without our cookies, and with `Connection: close`."""
    lines = [head.line]
    for name, value in head.headers:
        lowered = name.lower()
        if lowered == b"cookie":
            ours = _COOKIES.encode()
            value = b"; ".join(
                cookie for cookie in map(bytes.strip, value.split(b";")) if not cookie.startswith(ours)
            )
            if not value:
                continue
        if lowered in (b"connection", b"keep-alive") and not head.upgrades:
            continue
        lines.append(name + b": " + value)
    if not head.upgrades:
        lines.append(b"Connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n"


@contextlib.asynccontextmanager
async def _streams(
    connection: socket.socket,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(sock=connection)
    try:
        yield reader, writer
    finally:
        await _close(writer)


async def _splice(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    their_reader: asyncio.StreamReader,
    their_writer: asyncio.StreamWriter,
) -> None:
    """Runs until the program has sent everything, or the browser has disconnected."""
    up = asyncio.create_task(_copy(reader, their_writer))
    down = asyncio.create_task(_copy(their_reader, writer))
    try:
        await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
        if not down.done() and not reader.at_eof():
            await down
    finally:
        for task in (up, down):
            task.cancel()
        await asyncio.gather(up, down, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_PIECE):
            writer.write(data)
            async with asyncio.timeout(STALLED_SECONDS):
                await writer.drain()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def _respond(writer: asyncio.StreamWriter, status: str, message: str, headers: tuple[str, ...] = ()) -> None:
    shown = message[:1].upper() + message[1:]
    text = f"<!doctype html><title>Turnout</title><p>{escape(shown)}.</p>\n" if message else ""
    lines = [
        f"HTTP/1.1 {status}",
        "Content-Type: text/html; charset=utf-8",
        f"Content-Length: {len(text.encode())}",
        "Cache-Control: no-store",
        "Referrer-Policy: no-referrer",
        "Content-Security-Policy: default-src 'none'",
        "Connection: close",
        *headers,
    ]
    writer.write(("\r\n".join(lines) + "\r\n\r\n" + text).encode())
