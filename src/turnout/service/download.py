"""A response that streams an object."""

from collections.abc import AsyncIterable, Callable, Coroutine
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from turnout.errors import Unauthenticated
from turnout.storage.streams import FileStream, PlainPart

SEND_FILE = "turnout.response.file"
"""Our extension of ASGI by which the server sends a part of a file. The message says for which project, because
projects take turns.
"""

SendTask = Coroutine[Any, Any, None]


def sends_files(scope: Scope) -> bool:
    """Whether the server can send files: it cannot with TLS."""
    return SEND_FILE in scope.get("extensions", ())


def file_message(part: PlainPart) -> Message:
    """Sends the rest of a response."""
    size = part.end - part.start
    return {
        "type": SEND_FILE,
        "file": part.descriptor,
        "offset": part.start,
        "count": size,
        "project": part.project,
    }


class Download(StreamingResponse):
    """Calls `close` at the end, also if the client disconnects early."""

    guard: Callable[[SendTask], SendTask] | None = None
    """Wraps the sending and raises Unauthenticated when the caller's key is revoked. The response then ends before its
    Content-Length, which the client notices.
    """

    def __init__(
        self, body: AsyncIterable[bytes], close: Callable[[], None], status: int, headers: dict[str, str]
    ) -> None:
        super().__init__(body, status, headers)
        self._file = body.plain if isinstance(body, FileStream) else None
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not sends_files(scope):
            self._file = None
        try:
            sending = super().__call__(scope, receive, send)
            await (self.guard(sending) if self.guard else sending)
        except Unauthenticated:
            return
        finally:
            self._close()

    async def stream_response(self, send: Send) -> None:
        if self._file is None:
            await super().stream_response(send)
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send(file_message(self._file))
