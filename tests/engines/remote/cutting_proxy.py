"""A network between runners and the gateway that breaks a connection at a chosen place of a request or its answer."""

import asyncio
import contextlib
import re
from collections import Counter
from typing import Self

PLACES = (
    "nothing",
    "half of the line",
    "half of the headers",
    "the head",
    "half of the body",
    "all but a byte",
    "all",
)
"""How much of a request, or of its answer, still arrives. Requests that arrive whole are carried out."""
TIMES = 2
"""So often each call is cut, if it is made as often: the runner tries at once again if a connection was not new."""


class CuttingProxy:
    def __init__(self, port: int) -> None:
        """`port`: that of the gateway."""
        self._gateway = port
        self._connections: set[asyncio.StreamWriter] = set()
        self.direction, self.place = "", ""
        """Of every call that is cut: `request` or `answer`, and one of PLACES."""
        self.cuts: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        """By names: `claim`, `GET`, `shell/output`."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._connections:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        both = {writer}
        try:
            with contextlib.suppress(OSError, EOFError):
                upstream, sender = await asyncio.open_connection("127.0.0.1", self._gateway)
                both.add(sender)
                self._connections |= both
                while await self._exchange(reader, writer, upstream, sender):
                    pass
        finally:
            self._connections -= both
            for one in both:
                one.transport.abort()

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream: asyncio.StreamReader,
        sender: asyncio.StreamWriter,
    ) -> bool:
        """One request and its answer. Returns whether the connection is still there."""
        head, body = await _message(reader)
        name = _name(head)
        self.calls[name] += 1
        cut = self.cuts[name] < TIMES
        self.cuts[name] += cut
        if cut and self.direction == "request":
            sender.write(_part(head, body, self.place))
            await sender.drain()
            await asyncio.sleep(0.05)  # what was sent is not lost with the connection
            return False
        sender.write(head + body)
        head, body = await _message(upstream)
        if cut:
            writer.write(_part(head, body, self.place))
            await writer.drain()
            await asyncio.sleep(0.05)
            return False
        writer.write(head + body)
        await writer.drain()
        return True


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    size = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    return head, await reader.readexactly(int(size[1])) if size else b""


def _name(head: bytes) -> str:
    method, path = head.decode().split(" ")[:2]
    call = path.split("/", 5)[5]
    if call.startswith("objects/"):
        return method
    return re.sub(r"shell/[^/]+", "shell", call)


def _part(head: bytes, body: bytes, place: str) -> bytes:
    line = head.index(b"\r\n") + 2
    whole = head + body
    ends = (
        0,
        line // 2,
        (line + len(head)) // 2,
        len(head),
        len(head) + len(body) // 2,
        len(whole) - 1,
        len(whole),
    )
    return whole[: ends[PLACES.index(place)]]
