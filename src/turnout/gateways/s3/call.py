"""One request and the way to its answer."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from starlette.types import Receive, Send

from turnout.doors.s3 import xml
from turnout.doors.s3.body import Body, Target
from turnout.doors.s3.errors import S3Error
from turnout.doors.s3.sign import Asked, Chain
from turnout.storage import embedded_sums as sums
from turnout.storage.objects import Embedded

PIECE = 1 << 20

_LARGEST_DOCUMENT = 4 << 20
_KEEP_ALIVE = 5.0
"""Seconds. A client waits a minute for a byte; what takes longer is kept company with blanks, as S3 does."""

P = ParamSpec("P")
T = TypeVar("T")
Headers = dict[str, str]


class Gone(Exception):
    """The client went away."""


class Call:
    def __init__(
        self,
        asked: Asked,
        embedded: Embedded,
        channel: tuple[Receive, Send],
        threads: ThreadPoolExecutor,
        request_id: str,
    ) -> None:
        self.asked = asked
        self.embedded = embedded
        self.request_id = request_id
        self.bucket = self.key = self.project = ""
        self.started = False
        self._reading = False
        self._payload, self._chain = "", None
        self._receive, self._send = channel
        self._threads = threads

    def signed_by(self, project: str, payload: str, chain: Chain | None) -> None:
        """Whose request it is, and what its body is said to be."""
        self.project, self._payload, self._chain = project, payload, chain

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """In a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: function(*args, **kwargs))

    async def pour(self, target: Target) -> Body:
        """All of the body into the target. What was said about it is checked by the `finish` of what is returned."""
        body = Body(self.asked, self._payload, self._chain, target)
        writing: asyncio.Future[None] | None = None
        try:
            async for piece in self._pieces():
                if writing:
                    await writing
                writing = asyncio.ensure_future(self.run(body.feed, piece))
            if writing:
                await writing
        finally:
            if writing and not writing.done():
                # Nobody will ask for it any more. It ends by itself before whatever else the target is told.
                writing.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return body

    async def document(self) -> bytes:
        """A small body, whole."""
        memory = _Memory()
        body = await self.pour(memory)
        body.finish()
        return b"".join(memory.pieces)

    async def reply(self, status: int, headers: Headers | None = None, body: bytes = b"") -> None:
        length = {} if status in (204, 304) else {"content-length": str(len(body))}
        await self.start(status, length | (headers or {}))
        await self._send({"type": "http.response.body", "body": body})

    async def reply_xml(self, text: str) -> None:
        await self.reply(200, {"content-type": "application/xml"}, (xml.HEAD + text).encode())

    async def reply_late(self, work: Callable[[], str], failure: Callable[[Exception], str]) -> None:
        """A document that may take long to come about. If it fails after the start, its place is the error's."""
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
            await self.send(task.result().encode(), more=False)
        except Exception as error:  # noqa: BLE001  the status is sent: the document is the only place left to say it
            await self.send(failure(error).encode(), more=False)

    async def start(self, status: int, headers: Headers) -> None:
        self.started = True
        given = {"x-amz-request-id": self.request_id} | headers
        if self.asked.header("expect") and not self._reading:
            # The client now keeps its body to itself, so what comes next would be taken for it.
            given["connection"] = "close"
        pairs = [
            (name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in given.items()
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})

    async def send(self, data: bytes, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def gone(self) -> None:
        """Returns when the client has gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _pieces(self) -> AsyncIterator[bytes]:
        pending: list[bytes] = []
        size, more = 0, True
        self._reading = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Gone
            pending.append(message.get("body", b""))
            size += len(pending[-1])
            more = message.get("more_body", False)
            if size >= PIECE or (size and not more):
                yield b"".join(pending)
                pending, size = [], 0


class _Memory:
    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > _LARGEST_DOCUMENT:
            raise S3Error("EntityTooLarge", "The document is too long.")
        self.pieces.append(data)

    @property
    def md5(self) -> str:
        return hashlib.md5(b"".join(self.pieces), usedforsecurity=False).hexdigest()

    @property
    def crc32c(self) -> str:
        return sums.spelt(sums.extend(0, b"".join(self.pieces)))
