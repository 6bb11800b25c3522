"""A response that streams an object."""

from collections.abc import AsyncIterable, Callable, Coroutine
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from turnout.errors import Unauthenticated

SendTask = Coroutine[Any, Any, None]


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
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            sending = super().__call__(scope, receive, send)
            await (self.guard(sending) if self.guard else sending)
        except Unauthenticated:
            return
        finally:
            self._close()
