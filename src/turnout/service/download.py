"""An answer whose body is an object's."""

from collections.abc import AsyncIterable, Callable

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send


class Download(StreamingResponse):
    """Lets go of what it reads from also if the client has gone before its end."""

    def __init__(
        self, body: AsyncIterable[bytes], close: Callable[[], None], status: int, headers: dict[str, str]
    ) -> None:
        super().__init__(body, status, headers)
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._close()
