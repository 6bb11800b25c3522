"""Limits for the bodies of requests: their size, the time that one may take, and the memory of all at once.

Memory is reserved for a body before it is read, and released when its request is answered. If there is none left, the
request waits; after ten seconds, or if too many wait already, it is refused as Busy. A body that arrives slowly is
given up when others wait. Each sender has a limit of its own, so one that floods the service delays only itself.
"""

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from enum import StrEnum
from types import TracebackType
from typing import NamedTuple, Self

from starlette.types import Receive

from turnout.errors import Busy, Invalid, TooLarge

STRANGERS_LIMIT = 64 << 10
"""The largest body of an unknown sender, in bytes."""
TOTAL = 64 << 20
BODY_SECONDS = 60
MOST_VALUES = 250_000
"""The most values in one document. A value takes much more memory than its bytes in the body."""
TOO_LARGE = "The request is too large: the body may have {limit} bytes."
ARRIVED = "turnout.arrived"
"""In the scope of a request: whether its whole body has arrived."""
WINDOW = 512 << 10
"""The memory of an upload: one piece is received while another is written."""

WAIT_SECONDS = 10.0
MOST_WAITING = 64
"""Requests that may wait, for each kind of sender. Part of their bodies is in buffers already."""
LARGE = 1 << 20
PACE = 16 << 20
"""Bytes of large bodies that one sender may send in a second: processing a body delays all other requests."""
SLOW_SECONDS = 2.0
SLOW_RATE = 1 << 20
"""A body is slow if it takes longer than this many seconds, plus one second for each this many bytes."""
UPLOAD_SECONDS = 10.0
"""An upload is slow if its sender takes longer than this for half a window."""
_GIVE_BACK_ABOVE = 4 << 20
_FIRST_RESERVATION = 64 << 10
"""Reserved for a body of unknown length."""
_UNCOUNTED = 8 << 10
"""A body of this size that arrived with its head takes no more memory than its connection, and is not reserved for."""
_COUNT_VALUES_ABOVE = 64 << 10


class SenderKind(StrEnum):
    STRANGER = "stranger"
    """The head of the request does not identify the sender."""
    CLAIMED = "claimed"
    """The head names a key. The signature can be checked only when the whole body is there."""
    KNOWN = "known"
    """The head authenticates the sender."""
    UPLOAD = "upload"
    """The head authenticates the sender, and the body is written to disk as it arrives."""


_EIGHTHS = {SenderKind.STRANGER: 1, SenderKind.CLAIMED: 3, SenderKind.KNOWN: 4, SenderKind.UPLOAD: 8}
"""Each kind's part of the total, in eighths. Uploads have as much again as all others."""


class Sender(NamedTuple):
    kind: SenderKind
    name: str = ""
    """The key that a request claims, or the project that it is known to come from."""


STRANGER = Sender(SenderKind.STRANGER)


def claimed(key: str) -> Sender:
    return Sender(SenderKind.CLAIMED, key)


def known(project: str) -> Sender:
    return Sender(SenderKind.KNOWN, project)


def uploading(project: str) -> Sender:
    return Sender(SenderKind.UPLOAD, project)


class Reservation:
    """What one request has reserved. A context manager: it ends with the request."""

    def __init__(self, bodies: "Bodies", sender: Sender) -> None:
        self.sender = sender
        self.size = 0
        self.given_up = False
        """Whether the body was dropped because others needed its memory."""
        self._bodies = bodies
        self._due = 0.0
        self._give_up: Callable[[], object] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.size > LARGE and self.sender.kind is not SenderKind.UPLOAD:
            self._bodies.arrived(self)
            asyncio.get_running_loop().call_later(self.size / PACE, self._bodies.release, self)
        elif self.size:
            self._bodies.release(self)

    async def reserve(self, size: int) -> None:
        """Reserves memory for bytes that are about to be read; waits if necessary. Raises Busy."""
        await self._bodies.reserve(self, size)

    def grow(self, size: int) -> None:
        """Reserves more than planned. Never waits, because a holder that waits could deadlock. Raises Busy."""
        self._bodies.grow(self, size)

    @contextlib.asynccontextmanager
    async def receiving(self, seconds: float | None = None) -> AsyncGenerator[None]:
        """The body is read inside. Raises Busy if it is slow and others need its memory, TimeoutError if it is late."""
        try:
            async with asyncio.timeout(seconds) as clock:
                self.arriving(lambda: clock.reschedule(0))
                yield
        except TimeoutError:
            if self.given_up:
                raise _too_slow() from None
            raise
        finally:
            self.arrived()

    async def pieces(self, body: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
        """The pieces of an upload, inside `receiving`. Only the time that its sender takes counts."""
        loop = asyncio.get_running_loop()
        coming, left, size = aiter(body), UPLOAD_SECONDS, 0
        while True:
            began = loop.time()
            self._due = began + left
            try:
                piece = await anext(coming)
            except StopAsyncIteration:
                return
            finally:
                self._due = math.inf
            left, size = left - (loop.time() - began), size + len(piece)
            if size >= WINDOW // 2:
                left, size = UPLOAD_SECONDS, 0
            yield piece

    def arriving(self, give_up: Callable[[], object]) -> None:
        """Reading begins. `give_up` stops it if it is slow and others need the memory."""
        self._give_up = give_up
        if self.sender.kind is SenderKind.UPLOAD:
            self._due = math.inf
        else:
            self._due = asyncio.get_running_loop().time() + SLOW_SECONDS + self.size / SLOW_RATE
        self._bodies.arriving(self)

    def arrived(self) -> None:
        self._give_up = None
        self._bodies.arrived(self)

    def slow(self, now: float) -> bool:
        return self._give_up is not None and now > self._due

    def give_way(self) -> None:
        if self._give_up:
            self.given_up = True
            self._give_up()
            self._give_up = None


class _Pool:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self.arriving: dict[Reservation, None] = {}
        """The oldest first."""

    def has(self, size: int) -> bool:
        return self.size + size <= self.limit


class _Waiter(NamedTuple):
    reservation: Reservation
    size: int
    admitted: asyncio.Future[None]


class Bodies:
    """`give_back` is called when all memory is released after much of it was reserved."""

    def __init__(self, total: int = TOTAL, give_back: Callable[[], None] = lambda: None) -> None:
        self._kinds = {kind: _Pool(total * eighths // 8) for kind, eighths in _EIGHTHS.items()}
        self._shares = {kind: total // (2 if kind is SenderKind.UPLOAD else 4) for kind in SenderKind}
        self._senders: dict[Sender, _Pool] = {}
        self._waiting: dict[SenderKind, deque[_Waiter]] = {kind: deque() for kind in SenderKind}
        self._timer: asyncio.TimerHandle | None = None
        self._give_back = give_back
        self._peak = 0
        """The most bytes that were reserved at once since the last time when none were reserved."""

    @property
    def size(self) -> int:
        return sum(pool.size for pool in self._kinds.values())

    def open(self, sender: Sender) -> Reservation:
        return Reservation(self, sender)

    @contextlib.asynccontextmanager
    async def upload(self, project: str, body: AsyncIterable[bytes]) -> AsyncGenerator[AsyncGenerator[bytes]]:
        """The pieces of a body that is written as it arrives. Raises Busy."""
        with self.open(uploading(project)) as reservation:
            await reservation.reserve(WINDOW)
            async with reservation.receiving(), contextlib.aclosing(reservation.pieces(body)) as pieces:
                yield pieces

    async def reserve(self, reservation: Reservation, size: int) -> None:
        waiting = self._waiting[reservation.sender.kind]
        behind = waiting and any(waiter.reservation.sender == reservation.sender for waiter in waiting)
        if not behind and self._fits(reservation.sender, size):
            self._take(reservation, size)
            return
        if len(waiting) >= MOST_WAITING:
            raise _busy()
        waiter = _Waiter(reservation, size, asyncio.get_running_loop().create_future())
        waiting.append(waiter)
        self._relieve()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await waiter.admitted
        except TimeoutError:
            if not waiter.admitted.done() or waiter.admitted.cancelled():
                raise _busy() from None
        finally:
            if waiter in waiting:
                waiting.remove(waiter)

    def grow(self, reservation: Reservation, size: int) -> None:
        if not self._fits(reservation.sender, size):
            raise _busy()
        self._take(reservation, size)

    def arriving(self, reservation: Reservation) -> None:
        for pool in self._pools(reservation.sender):
            pool.arriving[reservation] = None

    def arrived(self, reservation: Reservation) -> None:
        for pool in self._pools(reservation.sender):
            pool.arriving.pop(reservation, None)

    def release(self, reservation: Reservation) -> None:
        self.arrived(reservation)
        self._peak = max(self._peak, self.size)
        size, reservation.size = reservation.size, 0
        for pool in self._pools(reservation.sender):
            pool.size -= size
        if not self._senders[reservation.sender].size:
            del self._senders[reservation.sender]
        if self._waiting[reservation.sender.kind]:
            self._admit(reservation.sender.kind)
        elif self._peak > _GIVE_BACK_ABOVE and not self.size:
            self._peak = 0
            # A moment later, when the bodies themselves are freed.
            asyncio.get_running_loop().call_later(0.1, self._give_back)

    def _pools(self, sender: Sender) -> tuple[_Pool, _Pool]:
        own = self._senders.get(sender)
        if own is None:
            own = self._senders[sender] = _Pool(self._shares[sender.kind])
        return own, self._kinds[sender.kind]

    def _fits(self, sender: Sender, size: int) -> bool:
        own = self._senders.get(sender)
        return (own is None or own.has(size)) and self._kinds[sender.kind].has(size)

    def _take(self, reservation: Reservation, size: int) -> None:
        reservation.size += size
        for pool in self._pools(reservation.sender):
            pool.size += size

    def _admit(self, kind: SenderKind) -> None:
        """Admits waiting requests, those of the sender that holds the least first.

        A request that does not fit into the pool of its kind holds back all requests behind it.
        """
        held = {sender: pool.size for sender, pool in self._senders.items()}
        for waiter in sorted(self._waiting[kind], key=lambda waiter: held.get(waiter.reservation.sender, 0)):
            sender = waiter.reservation.sender
            if not self._kinds[kind].has(waiter.size):
                break
            if self._fits(sender, waiter.size) and not waiter.admitted.done():
                self._waiting[kind].remove(waiter)
                self._take(waiter.reservation, waiter.size)
                waiter.admitted.set_result(None)

    def _relieve(self) -> None:
        """Drops slow bodies, one for each waiting request."""
        loop = asyncio.get_running_loop()
        for waiter in [waiter for waiting in self._waiting.values() for waiter in waiting]:
            sender = waiter.reservation.sender
            own = self._senders.get(sender)
            crowded = own if own and not own.has(waiter.size) else self._kinds[sender.kind]
            slow = next((body for body in crowded.arriving if body.slow(loop.time())), None)
            if slow:
                slow.give_way()
        if self._timer is None and any(self._waiting.values()):
            self._timer = loop.call_later(SLOW_SECONDS / 4, self._relieve_again)

    def _relieve_again(self) -> None:
        self._timer = None
        self._relieve()


def _busy() -> Busy:
    return Busy("The service is receiving too many request bodies: send the request again a little later.")


def _too_slow() -> Busy:
    return Busy("The body arrived too slowly while other requests waited: send the request again.")


async def read_body(
    reservation: Reservation,
    headers: Mapping[bytes, bytes],
    receive: Receive,
    limit: int,
    *,
    arrived: bool = False,
    late: str = "",
    too_large: str = TOO_LARGE,
) -> bytes | None:
    """The whole body, or an error as soon as it is too large. None if the client disconnected.

    Unknown senders have a smaller limit. `arrived`: nothing has to be waited for. `late` is the dialect's code for a
    body that takes too long, `too_large` its message for one that is too large.
    """
    if reservation.sender.kind is SenderKind.STRANGER and limit > STRANGERS_LIMIT:
        limit = STRANGERS_LIMIT
        too_large += " A larger body needs credentials in the head of the request."
    declared = headers.get(b"content-length", b"0")
    if len(declared) > 19 or int(declared) > limit:
        raise TooLarge(too_large.format(limit=limit))
    chunked = b"transfer-encoding" in headers
    expected = min(_FIRST_RESERVATION, limit) if chunked else int(declared)
    arrived = arrived and not chunked
    if expected > (_UNCOUNTED if arrived else 0):
        await reservation.reserve(expected)
    if arrived:
        message = await receive()
        body = None if message["type"] == "http.disconnect" else message.get("body", b"")
    else:
        body = await _receive(reservation, receive, limit, late, too_large)
    if body is not None:
        _check_values(body)
    return body


async def _receive(
    reservation: Reservation, receive: Receive, limit: int, late: str, too_large: str
) -> bytes | None:
    parts: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout(BODY_SECONDS) as clock:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                parts.append(message.get("body", b""))
                size, more = size + len(parts[-1]), message.get("more_body", False)
                if size > limit:
                    raise TooLarge(too_large.format(limit=limit))
                if size > reservation.size:
                    reservation.grow(min(2 * size, limit) - reservation.size)
                if more and len(parts) == 1 and reservation.size:
                    reservation.arriving(lambda: clock.reschedule(0))
    except TimeoutError:
        if reservation.given_up:
            raise _too_slow() from None
        raise Invalid(f"The body did not arrive within {BODY_SECONDS} s.", code=late) from None
    if len(parts) > 1 and reservation.size:
        reservation.arrived()
    return b"".join(parts)


def _check_values(body: bytes) -> None:
    """Raises TooLarge. Commas inside texts count too: no real document has that many."""
    if len(body) > _COUNT_VALUES_ABOVE and body.count(b",") > MOST_VALUES:
        raise TooLarge(f"The request is too large: the body may have {MOST_VALUES} values.")
