"""A client of the Kubernetes API: requests with JSON, and watches. It has what this engine needs, and no more."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, NamedTuple
from urllib.parse import urlencode

import httptools
import msgspec

from turnout import pools
from turnout.engines import Unreachable
from turnout.engines.kubernetes.kubeconfig import Access
from turnout.errors import TurnoutError

_log = logging.getLogger(__name__)

Document = dict[str, Any]

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0
MERGE_PATCH = "application/merge-patch+json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
LISTED_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
"""What to accept where only the metadata of a large object is needed."""
_MOST_IDLE = 4
_IDLE_SECONDS = 60.0
_CHUNK = 256 << 10
_LATER = (408, 429, 500, 502, 503, 504)


class ApiError(TurnoutError):
    """The server refused a request."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        """Kubernetes' own word: `AlreadyExists`, `Forbidden`, …"""


class Api:
    def __init__(self, read_access: Callable[[], Access], seconds: float = ANSWER_SECONDS) -> None:
        """`read_access` may block."""
        self._read_access = read_access
        self._seconds = seconds
        self._access: Access | None = None
        self._idle: list[_Connection] = []

    async def access(self) -> Access:
        """Raises Unreachable."""
        if self._access is None or self._access.expires < time.time():
            self._access = await pools.disk.run(pools.OWN, self._read_access)
        return self._access

    async def get(self, path: str, accept: str = "application/json", **query: str) -> Document:
        return await self.request("GET", path, query=query, accept=accept)

    async def request(
        self,
        method: str,
        path: str,
        body: Document | None = None,
        *,
        query: dict[str, str] | None = None,
        accept: str = "application/json",
        content_type: str = "application/json",
    ) -> Document:
        """Raises ApiError or Unreachable."""
        path = f"{path}?{urlencode(query)}" if query else path
        for final in (False, True):
            access = await self.access()
            data = msgspec.json.encode(body) if body is not None else None
            answer = await self._send(access, method, path, data, accept, content_type)
            if answer.code != 401 or final:
                break
            self.read_again()  # the token may have been replaced
        return _checked(answer)

    async def watch(self, path: str, **query: str) -> AsyncGenerator[Document]:
        """Events as they come, until the server ends the watch. Raises ApiError or Unreachable."""
        access = await self.access()
        connection = await self._connect(access)
        try:
            # No idle connection: a watch that ends at once would look like a server that is away.
            await connection.send("GET", f"{path}?{urlencode(query)}", None, _headers(access))
            seconds = float(query.get("timeoutSeconds", "0")) + self._seconds
            answer = await _within(self._seconds, connection.head())
            if answer.code != 200:
                if answer.code == 401:
                    self.read_again()
                _checked(await _within(self._seconds, connection.rest(answer)))
                return
            async for line in connection.lines(seconds):
                event = msgspec.json.decode(line)
                if event.get("type") == "ERROR":
                    _checked(
                        Answer(int(event["object"].get("code") or 500), msgspec.json.encode(event["object"]))
                    )
                yield event
        except (OSError, EOFError, httptools.HttpParserError, msgspec.DecodeError) as error:
            raise _unreachable(access, error) from None
        finally:
            connection.close()

    def read_again(self) -> None:
        self._access = None

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _send(
        self, access: Access, method: str, path: str, body: bytes | None, accept: str, content_type: str
    ) -> "Answer":
        """A connection that the server has closed meanwhile is replaced once."""
        headers = _headers(access) | {"Accept": accept}
        if body is not None:
            headers |= {"Content-Type": content_type, "Content-Length": str(len(body))}
        while True:
            reused = self._take_idle(access)
            connection = reused or await self._connect(access)
            try:
                async with asyncio.timeout(self._seconds):
                    await connection.send(method, path, body, headers)
                    answer = await connection.rest(await connection.head())
            except BaseException as error:
                connection.close()
                if reused and isinstance(error, OSError | EOFError) and not isinstance(error, TimeoutError):
                    continue  # it may have been done: every request of this engine can be repeated
                if isinstance(error, OSError | EOFError | httptools.HttpParserError):
                    raise _unreachable(access, error) from None
                raise
            if connection.reusable and len(self._idle) < _MOST_IDLE:
                connection.idle_since = time.monotonic()
                self._idle.append(connection)
            else:
                connection.close()
            return answer

    def _take_idle(self, access: Access) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            fresh = time.monotonic() - connection.idle_since < _IDLE_SECONDS
            if fresh and connection.access is access and not connection.is_closed:
                return connection
            connection.close()
        return None

    async def _connect(self, access: Access) -> "_Connection":
        server = access.server
        port = server.port or (443 if access.context else 80)
        name = (access.server_name or server.hostname) if access.context else None
        try:
            reader, writer = await _within(
                CONNECT_SECONDS,
                asyncio.open_connection(
                    server.hostname, port, ssl=access.context, server_hostname=name, limit=_CHUNK
                ),
            )
        except OSError as error:
            raise _unreachable(access, error) from None
        return _Connection(access, reader, writer)


class Answer(NamedTuple):
    code: int
    body: bytes = b""


class _Connection:
    """One connection, one answer at a time."""

    def __init__(self, access: Access, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.access = access
        self.idle_since = 0.0
        self._reader = reader
        self._writer = writer
        self._body: list[bytes] = []
        self._headed = self._complete = False
        self._parser = httptools.HttpResponseParser(self)

    # What httptools calls.

    def on_headers_complete(self) -> None:
        self._headed = True

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._complete = True

    async def send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> None:
        self._body, self._headed, self._complete = [], False, False
        self._parser = httptools.HttpResponseParser(self)
        prefix = self.access.server.path.rstrip("/")
        lines = [
            f"{method} {prefix}{path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + (body or b""))
        await self._writer.drain()

    async def head(self) -> Answer:
        while not self._headed:
            await self._feed()
        return Answer(self._parser.get_status_code())

    async def rest(self, answer: Answer) -> Answer:
        while not self._complete:
            await self._feed()
        return answer._replace(body=b"".join(self._body))

    async def lines(self, seconds: float) -> AsyncGenerator[bytes]:
        """`seconds`: the longest silence."""
        rest = b""
        while True:
            data, self._body = b"".join(self._body), []
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                yield line
            if self._complete:
                return
            await _within(seconds, self._feed())

    async def _feed(self) -> None:
        data = await self._reader.read(_CHUNK)
        if not data:
            raise EOFError("it closed the connection")
        self._parser.feed_data(data)

    @property
    def reusable(self) -> bool:
        return self._parser.should_keep_alive()

    @property
    def is_closed(self) -> bool:
        return self._reader.at_eof() or self._writer.is_closing()

    def close(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.transport.abort()


async def _within(seconds: float, work: Any) -> Any:
    async with asyncio.timeout(seconds):
        return await work


def _headers(access: Access) -> dict[str, str]:
    found = {"Host": access.server.netloc.rpartition("@")[2], "User-Agent": "turnout"}
    return found | ({"Authorization": access.authorization} if access.authorization else {})


def _checked(answer: Answer) -> Document:
    try:
        document = msgspec.json.decode(answer.body) if answer.body else {}
    except msgspec.DecodeError:
        document = {}
    if answer.code < 300:
        return document
    status = document if isinstance(document, dict) else {}
    message = str(status.get("message") or answer.body[:300].decode(errors="replace").strip())
    message = message or f"HTTP status {answer.code}"
    if answer.code in _LATER:
        raise Unreachable(f"the API server answers: {message} ({answer.code})")
    if answer.code == 401:
        raise Unreachable("the API server does not accept the credentials (401 Unauthorized)")
    raise ApiError(answer.code, str(status.get("reason") or ""), message)


def _unreachable(access: Access, error: BaseException) -> Unreachable:
    if isinstance(error, TimeoutError):
        return Unreachable(f"the API server {access.server.netloc} does not answer in time")
    return Unreachable(f"the API server {access.server.netloc} cannot be reached: {error}")
