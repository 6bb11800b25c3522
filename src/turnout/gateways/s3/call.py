"""One request and its response."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from starlette.types import Message, Receive, Send

from turnout.access import FindsKeys
from turnout.access.revoked import unless_revoked
from turnout.access.sigv4 import ChunkSigner, HttpRequest
from turnout.bodies import BODY_SECONDS, STRANGER, WINDOW, Bodies, Reservation, known
from turnout.gateways.s3 import apis, xml
from turnout.gateways.s3.apis import StorageApi
from turnout.gateways.s3.body import Body, BodyWriter
from turnout.gateways.s3.errors import S3Error
from turnout.service.download import file_message
from turnout.storage.clients import ClientBuckets
from turnout.storage.embedded import checksums
from turnout.storage.streams import PlainPart

PIECE = WINDOW // 2

_MAX_DOCUMENT = 4 << 20
_KEEP_ALIVE = 5.0
"""Seconds. Clients wait a minute for a byte, so a slow response begins with blanks, as it does at S3."""

P = ParamSpec("P")
T = TypeVar("T")
Headers = dict[str, str]


class ClientDisconnected(Exception):
    """The client has closed the connection."""


class S3Call:
    def __init__(
        self,
        request: HttpRequest,
        api: StorageApi,
        store: ClientBuckets,
        channel: tuple[Receive, Send],
        bodies: Bodies,
        request_id: str,
    ) -> None:
        self.request = request
        self.api = api
        self.store = store
        self.request_id = request_id
        self.bucket = self.key = self.project = ""
        self.source_bucket = ""
        """The bucket that a copy reads."""
        self.started = False
        self.sends_files = False
        """Whether the server can send files."""
        self._reading = self._read = False
        self._payload, self._chain = "", None
        self._key: tuple[FindsKeys, str] | None = None
        self._receive, self._send = channel
        self._bodies = bodies

    def signed_by(self, project: str, payload: str, chain: ChunkSigner | None) -> None:
        """Sets the project, and what the client declares about the body."""
        self.project, self._payload, self._chain = project, payload, chain

    def end_when_revoked(self, keys: FindsKeys, key_id: str) -> None:
        """Ends long work of this call when the key is revoked."""
        self._key = keys, key_id

    async def while_allowed(self, work: Coroutine[Any, Any, T]) -> T:
        """Returns the result of `work`. Cancels it and raises Unauthenticated when the key is revoked."""
        return await (unless_revoked(*self._key, work) if self._key else work)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls the function in a thread."""
        pool = self.store.pool(self.bucket, self.source_bucket)
        return await pool.run(self.project, function, *args, **kwargs)

    async def check_bucket(self) -> None:
        """Raises S3Error if the bucket does not exist."""
        if not await self.run(self.store.has_bucket, self.bucket, self.project):
            raise S3Error("NoSuchBucket", f"there is no bucket {self.bucket!r}")

    async def receive_body(self, target: BodyWriter) -> Body:
        """Writes the body to the target. Call `finish` of the returned body to verify it."""
        body = Body(self.request, self._payload, self._chain, target)
        async with self._bodies.upload(self.project, self.pieces()) as pieces:
            await self._feed(body.feed, pieces)
        return body

    def unauthenticated_body(self) -> Reservation:
        """Reserves memory for a body whose sender is not authenticated yet."""
        return self._bodies.open(STRANGER)

    async def write_pieces(self, feed: Callable[[bytes], None], first: bytes) -> None:
        """Calls `feed` in threads with `first` and with the rest of the body."""
        async with self._bodies.upload(self.project, self.pieces()) as pieces:
            await self.run(feed, first)
            await self._feed(feed, pieces)

    async def _feed(self, feed: Callable[[bytes], None], pieces: AsyncIterator[bytes]) -> None:
        writing: asyncio.Future[None] | None = None
        try:
            async for piece in pieces:
                if writing:
                    await writing
                writing = asyncio.ensure_future(self.run(feed, piece))
            if writing:
                await writing
        finally:
            if writing and not writing.done():
                # Its result is not needed. The target's lock lets it end before the next call.
                writing.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

    async def document(self) -> bytes:
        """Reads a small body."""
        memory = _Memory()
        body = Body(self.request, self._payload, self._chain, memory)
        size = _MAX_DOCUMENT if body.length is None else min(body.length, _MAX_DOCUMENT)
        try:
            with self._bodies.open(known(self.project)) as reservation:
                await reservation.reserve(size)
                async with reservation.receiving(BODY_SECONDS):
                    await self._feed(body.feed, self.pieces())
                body.finish()
                return b"".join(memory.pieces)
        except TimeoutError:
            raise S3Error("RequestTimeout", f"The body did not arrive within {BODY_SECONDS} s.") from None

    async def reply(self, status: int, headers: Headers | None = None, body: bytes = b"") -> None:
        length = {} if status in (204, 304) else {"content-length": str(len(body))}
        await self.start(status, length | (headers or {}))
        await self._send({"type": "http.response.body", "body": body})

    async def reply_xml(self, text: str) -> None:
        await self.reply(200, {"content-type": "application/xml"}, self.document_bytes(text))

    def document_bytes(self, text: str) -> bytes:
        """A document in the namespace of the caller's API."""
        return (xml.HEAD + xml.in_namespace(text, self.api.namespace)).encode()

    async def reply_late(self, work: Callable[[], str], failure: Callable[[Exception], str]) -> None:
        """Sends a document that takes long to make. If it fails after the status was sent, sends the error instead."""
        task = asyncio.ensure_future(self.run(work))
        while not (await asyncio.wait((task,), timeout=_KEEP_ALIVE))[0]:
            if not self.started:
                await self.start(200, {"content-type": "application/xml"})
                await self.send(xml.HEAD.encode())
            await self.send(b" ")
        if not self.started:
            await self.reply_xml(task.result())
            return
        try:
            await self.send(xml.in_namespace(task.result(), self.api.namespace).encode(), more=False)
        except Exception as error:  # noqa: BLE001 (the status is sent, so the document has to report it)
            await self.send(failure(error).encode(), more=False)

    async def start(self, status: int, headers: Headers) -> None:
        self.started = True
        given = apis.outward(self.api, {"x-amz-request-id": self.request_id} | headers)
        if self.request.header("expect") and not self._reading:
            # The client does not send the body now, so the next request would be taken for it.
            given["connection"] = "close"
        pairs = [
            (name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in given.items()
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})

    async def send(self, data: bytes, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def send_file(self, file: int, start: int, end: int) -> None:
        """Sends the rest of the response. Only if `sends_files`."""
        await self._send(file_message(PlainPart(self.project, file, start, end)))

    async def disconnected(self) -> None:
        """Returns when the client has closed the connection."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def pieces(self, gather: int = PIECE) -> AsyncGenerator[bytes]:
        """The rest of the body, in pieces of at least `gather` bytes, except for the last."""
        pending: list[bytes] = []
        size, more = 0, not self._read
        self._reading = True
        while more:
            message = await self.while_allowed(_received(self._receive))
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            pending.append(message.get("body", b""))
            size += len(pending[-1])
            more = message.get("more_body", False)
            self._read = not more
            if size >= gather or (size and not more):
                yield b"".join(pending)
                pending, size = [], 0


async def _received(receive: Receive) -> Message:
    return await receive()


class _Memory:
    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > _MAX_DOCUMENT:
            raise S3Error("EntityTooLarge", "The document is too long.")
        self.pieces.append(data)

    @property
    def md5(self) -> str:
        return hashlib.md5(b"".join(self.pieces), usedforsecurity=False).hexdigest()

    @property
    def crc32c(self) -> str:
        return checksums.encode(checksums.extend(0, b"".join(self.pieces)))
