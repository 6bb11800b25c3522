"""One write for the head of a response and the beginning of its body: a write costs a tenth of a small request."""

import asyncio
import re

_SMALL = 64 << 10
"""A larger piece of a body is not copied."""
_OF_COS = b"\r\nx-cos-request-id: "
_NAME = re.compile(rb"\r\n(?!x-)[a-z-]+(?=: )")


class JoinedWrites:
    """The part of a transport that uvicorn uses for responses."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.is_closing = transport.is_closing
        self._transport = transport
        self._loop = loop
        self._is_head = False
        self._head = b""

    def head_is_next(self) -> None:
        """The next write is a head. It waits for the one after it, at most until the loop's next turn."""
        self._is_head = True

    def write(self, data: bytes) -> None:
        if self._is_head:
            self.flush()
            self._is_head, self._head = False, _spelled(data) if _OF_COS in data else data
            self._loop.call_soon(self.flush)
        elif self._head and len(data) <= _SMALL:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        else:
            self.flush()
            self._transport.write(data)

    def flush(self) -> None:
        head, self._head = self._head, b""
        # A connection that was aborted meanwhile cannot be written to.
        if head and not self.is_closing():
            self._transport.write(head)

    def close(self) -> None:
        self.flush()
        self._transport.close()


def _spelled(head: bytes) -> bytes:
    """The names of headers as COS spells them. uvicorn sends lower case, and Tencent's SDK gives them to programs as
    they come, which ask for `ETag`."""
    return _NAME.sub(lambda name: name[0].title(), head).replace(b"\r\nEtag: ", b"\r\nETag: ")
