"""HTTP/1.1, with limits on what somebody may cost whom nobody knows yet."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 96 << 10
"""A request line and its headers. The longest that any cloud allows is a GET of 32 KiB."""
HEAD_SECONDS = 30
"""For them to arrive, from the connection or from the last request's end that something was sent after."""


class LimitedProtocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head: int | None = 0
        """Bytes of the head so far; None while a body or nothing is awaited."""
        self._timer: asyncio.TimerHandle | None = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            self._head += len(data)
            # A body may come in the same piece as its head: only what has not ended within the limit is too long.
            if self._head - len(data) > HEAD_BYTES:
                self.send_400_response("The request line and headers are too long.")
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        self._head = 0
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head = None
        self._stop_timer()
        super().on_headers_complete()

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
