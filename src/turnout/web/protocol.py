"""HTTP/1.1 with limits for clients that are not authenticated yet."""

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, Self

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from turnout.bodies import ARRIVED
from turnout.service.download import SEND_FILE
from turnout.web.file_sending import FileSending
from turnout.web.joined_writes import JoinedWrites

HEAD_BYTES = 96 << 10
"""The maximum size of the request line and headers. The longest request of any cloud's API is a GET of 32 KiB."""
LINE_BYTES = 64 << 10
MOST_HEADERS = 256
TRAILER_BYTES = 16 << 10
HEADS_BYTES = 16 << 20
"""Memory of all large heads, until their requests are answered. Beyond it, the oldest client is disconnected."""
HEAD_SECONDS = 30
"""Time for the head to arrive, from the connection or from the first byte after the last request."""
MOST_PIPELINED = 100
"""Requests that a client may send before the first is answered."""
DISCARDED_BYTES = 64 << 20
"""The part of a body that is read and discarded because its request was answered already."""
DISCARD_SECONDS = 0.05
"""The pause between two reads of such a body."""
DISCARD_TURN_SECONDS = 0.004
"""The pause between reads of different such bodies. They take turns, so that many cost no more than a few."""
STALLED_SECONDS = 60.0
"""Time for a client to read some of its response."""
UNSENT_BYTES = 48 << 20
"""Unsent data of all slow clients. Beyond it, the client that has not read for the longest time is disconnected."""

_LONG = len("100000")
"""Digits of a Content-Length whose body does not arrive together with the head."""
_LARGE_HEAD = 8 << 10
_WORTH_GIVING_BACK = 4 << 20
_HEADER_BYTES = 150
"""What a header takes beside its own bytes."""
_FRAMING_BYTES, _FRAMING_RATIO = 64 << 10, 16
"""The framing of a chunked body may have this many bytes, plus this many times the size of its data."""


class _Refused(Exception):
    """Ends the parser; the response is in `_refusal`."""


class LimitedProtocol(HttpToolsProtocol):
    _unread: ClassVar[dict[Self, None]] = {}
    """Connections whose clients read slowly; the one that has not read for the longest time is first."""
    _next_turn: ClassVar[float] = 0.0
    """When the next piece of a body may be discarded, by the loop's clock."""
    _large_heads: ClassVar[dict[Self, int]] = {}
    """Memory of the heads of connections where that is much; the oldest first."""
    _heads_size: ClassVar[int] = 0
    _heads_most: ClassVar[int] = 0
    """The most memory that they took at once since there were none."""
    give_back: ClassVar[Callable[..., None]] = staticmethod(lambda: None)
    """Called when no large head is left after there were many."""

    _responses: JoinedWrites

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._refusal = (400, "")
        self._head: int | None = 0
        """Bytes of the head so far; None while a body is read."""
        self._begun = False
        """Whether a part of the head has arrived."""
        self._piece = 0
        """Bytes of the data being parsed, if it begins a head."""
        self._counted = self._headers = 0
        """Bytes and number of the complete headers; after the head, of the trailers."""
        self._unanswered = 0
        """Memory of the heads of requests that are not answered."""
        self._long_body = False
        """Whether the head announces a body that does not arrive together with it."""
        self._framing = 0
        """Received bytes of the body, including its framing."""
        self._payload = self._discarded = 0
        self._timer: asyncio.TimerHandle | None = None
        """Runs on while requests come and go, because making and cancelling one for each request costs more."""
        self._deadline: float | None = None
        """For the head that is arriving, or for the next request to begin, by the loop's clock."""
        self._stalled: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._file: FileSending | None = None
        """The file that is being sent."""
        self.app = self._paced(self.app)  # type: ignore[assignment]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._responses = JoinedWrites(transport, self.loop)
        self._await_head(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._forget_unread()
        if self._file:
            self._file.lose()
        super().connection_lost(exc)
        # `app` refers to this object, which would keep the head until the garbage collector finds both.
        self.headers, self.url, self.app = [], b"", None  # type: ignore[assignment]
        self._release_heads()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._head is None:
            self._framing += len(data)
            if not self._may_continue(len(data)):
                return
        elif self._begun:
            self._head += len(data)
        else:
            self._piece = len(data)
        super().data_received(data)
        if self._head is not None and self._head > HEAD_BYTES and not self.transport.is_closing():
            self._refuse(431, "The request line and headers are too long.")
        elif self._head is not None and self._begun:
            self._hold_heads(self._head + _HEADER_BYTES * self._headers)

    def on_message_begin(self) -> None:
        self._head, self._piece, self._begun = self._piece, 0, True
        self._counted = self._headers = 0
        self._await_head(HEAD_SECONDS)
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > LINE_BYTES:
            self._end_parser(414, f"The URL may have {LINE_BYTES} bytes.")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._counted += len(name) + len(value) + 4
        self._headers += 1
        if self._head is None:
            # A trailer. The service uses none, and must not take it for a header.
            if self._counted > TRAILER_BYTES:
                self._end_parser(400, "The trailers are too long.")
            return
        if self._counted + len(self.url) > HEAD_BYTES or self._headers > MOST_HEADERS:
            self._end_parser(
                431, f"A request may have {MOST_HEADERS} headers and {HEAD_BYTES} bytes of them."
            )
        name = name.lower()
        if name == b"content-length":
            self._long_body = len(value) >= _LONG
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MOST_PIPELINED:
            self._end_parser(400, f"{MOST_PIPELINED} requests may be sent before the first is answered.")
        self._unanswered += self._counted + len(self.url) + _HEADER_BYTES * self._headers
        self._hold_heads()
        self._head, self._begun = None, False
        self._counted = self._headers = self._framing = self._payload = self._discarded = 0
        self._deadline = None
        super().on_headers_complete()
        if self._long_body:
            # Do not read the body before the application has decided, by the head, whether it reads the body.
            self._long_body = False
            self.flow.pause_reading()

    def on_body(self, body: bytes) -> None:
        self._payload += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head = 0
        super().on_message_complete()
        if self._discarded:
            self._await_head(self.timeout_keep_alive)

    def on_response_complete(self) -> None:
        self._responses.flush()
        if self.cycle.response_complete:
            self.cycle.body = bytearray()  # the application did not read it
            if not self._begun:
                # Nobody needs the head any more, and the connection may stay open.
                self.headers, self.url = [], b""
                self.cycle.scope = self.scope = {}  # type: ignore[typeddict-item]
        if not self.pipeline:
            self._release_heads()
            if not self._begun:
                self._await_head(self.timeout_keep_alive)
        self._start_next()

    def _start_next(self) -> None:
        """Like `super().on_response_complete`, but without a timer for each response."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())

    def send_400_response(self, msg: str) -> None:
        """Called for every error of the parser."""
        status, why = self._refusal
        self._refuse(status, why or msg)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread[self] = None
        self._unsent = self.transport.get_write_buffer_size()
        self._stalled = self.loop.call_later(STALLED_SECONDS, self._check_progress)
        unsent = sum(connection.transport.get_write_buffer_size() for connection in self._unread)
        for connection in list(self._unread):
            if unsent <= UNSENT_BYTES or connection is self:
                break
            unsent -= connection.transport.get_write_buffer_size()
            connection.transport.abort()
            connection._forget_unread()

    def resume_writing(self) -> None:
        self._forget_unread()
        super().resume_writing()

    def _paced(self, app: ASGIApp) -> ASGIApp:
        """A streamed response continues when the client has read, so at most one piece waits."""

        async def paced(scope: Scope, receive: Receive, send: Send) -> None:
            cycle: RequestResponseCycle = receive.__self__  # type: ignore[attr-defined]
            cycle.transport = responses = self._responses  # type: ignore[assignment]
            scope[ARRIVED] = not cycle.more_body
            if self.scheme == "http":
                scope["extensions"] = {SEND_FILE: {}}

            async def send_and_wait(message: Message) -> None:
                if message["type"] == "http.response.start":
                    responses.head_is_next()
                elif message["type"] == SEND_FILE:
                    message = await self._send_file(cycle, message)
                await send(message)
                if self.flow.write_paused and message.get("more_body"):
                    await self.flow.drain()

            await app(scope, receive, send_and_wait)

        return paced

    async def _send_file(self, cycle: RequestResponseCycle, message: Message) -> Message:
        """Returns the message that tells uvicorn the rest."""
        count = message["count"]
        if cycle.chunked_encoding is not False or count > cycle.expected_content_length:
            raise RuntimeError("a file that is sent must fit the Content-Length")
        self._responses.flush()
        self._file = FileSending(self.transport, self.flow, STALLED_SECONDS)
        try:
            whole = await self._file.send(message["project"], message["file"], message["offset"], count)
        finally:
            self._file = None
        cycle.disconnected = cycle.disconnected or not whole
        cycle.expected_content_length -= count
        return {"type": "http.response.body", "more_body": message.get("more_body", False)}

    def _may_continue(self, received: int) -> bool:
        """Whether to read more of a body: limited if it is discarded, and refused if it is mostly framing."""
        if self.cycle and self.cycle.response_complete:
            self._discarded += received
            if self._discarded > DISCARDED_BYTES:
                self.transport.close()
                return False
            # Slowly, so that it does not delay other clients.
            self._deadline = None
            self.flow.pause_reading()
            self.loop.call_at(self._take_turn(), self._resume_reading)
        elif self._framing - self._payload > _FRAMING_BYTES + received + _FRAMING_RATIO * self._payload:
            self._refuse(400, "The body has too much chunk framing.")
            return False
        return True

    def _take_turn(self) -> float:
        turn = max(LimitedProtocol._next_turn, self.loop.time() + DISCARD_SECONDS)
        LimitedProtocol._next_turn = turn + DISCARD_TURN_SECONDS
        return turn

    def _resume_reading(self) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.cycle.response_complete and not self._begun:
                self._await_head(self.timeout_keep_alive)

    def _await_head(self, seconds: float) -> None:
        now = self.loop.time()
        self._deadline = now + seconds
        if self._timer is None:
            self._set_timer(now, self._deadline)

    def _set_timer(self, now: float, deadline: float) -> None:
        """It never rings after a deadline that is set meanwhile."""
        at = min(deadline, now + self.timeout_keep_alive)
        self._timer = self.loop.call_at(at, self._look_at_deadline)

    def _look_at_deadline(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        now = self.loop.time()
        if now < self._deadline:
            self._set_timer(now, self._deadline)
        elif self._begun and not self.transport.is_closing():
            self._refuse(408, f"The request line and headers did not arrive within {HEAD_SECONDS} s.")
        else:
            self.transport.close()

    def _end_parser(self, status: int, why: str) -> None:
        self._refusal = status, why
        raise _Refused

    def _refuse(self, status: int, why: str) -> None:
        """Send the response, unless a file is being sent, and close. Later data is ignored."""
        self._stop_timer()
        if self._file:
            # Threads write to the connection: the refusal would arrive in the middle of the file.
            self.transport.abort()
            return
        self._responses.flush()
        head = (
            b"content-type: text/plain; charset=utf-8\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n" % len(why)
        )
        self.transport.write(STATUS_LINE[status] + head + why.encode())
        self.transport.close()

    def _check_progress(self) -> None:
        """Disconnect a client that has read nothing since the last check."""
        size = self.transport.get_write_buffer_size()
        if size >= self._unsent:
            self.transport.abort()
            return
        self._unsent = size
        self._stalled = self.loop.call_later(STALLED_SECONDS, self._check_progress)

    def _hold_heads(self, incomplete: int = 0) -> None:
        """Counts the heads of this connection, and disconnects others if all take too much."""
        size, cls = self._unanswered + incomplete, LimitedProtocol
        if size <= _LARGE_HEAD:
            return
        cls._heads_size += size - cls._large_heads.get(self, 0)
        cls._large_heads[self] = size
        cls._heads_most = max(cls._heads_most, cls._heads_size)
        while cls._heads_size > HEADS_BYTES and len(cls._large_heads) > 1:
            oldest = next(one for one in cls._large_heads if one is not self)
            oldest.transport.abort()
            oldest._release_heads()

    def _release_heads(self) -> None:
        self._unanswered = 0
        cls = LimitedProtocol
        cls._heads_size -= cls._large_heads.pop(self, 0)
        if not cls._large_heads and cls._heads_most > _WORTH_GIVING_BACK:
            cls._heads_most = 0
            # A moment later, when they are freed.
            self.loop.call_later(0.1, cls.give_back)

    def _forget_unread(self) -> None:
        self._unread.pop(self, None)
        if self._stalled:
            self._stalled.cancel()
            self._stalled = None

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
