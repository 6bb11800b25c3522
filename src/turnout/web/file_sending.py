"""Sends a part of a file to a client: threads read it and write to the connection.

Each thread has one buffer, which stays in the processor's cache. sendfile would copy less here, but the client would
then copy from memory that is in no cache: most clients are slower than the service, and become slower by that.
"""

import array
import asyncio
import fcntl
import os
import termios
import threading
from collections.abc import Callable

from uvicorn.protocols.http.flow_control import FlowControl

from turnout import pools

_TURN_BYTES = 8 << 20
"""What one turn of a thread sends at most, to a client that reads as fast."""
_BUFFER_BYTES = 128 << 10


class _Truncated(Exception):
    pass


class _Thread(threading.local):
    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(_BUFFER_BYTES))


_threads = _Thread()


class FileSending:
    """One part of a file, to one connection without TLS. `stalled`: seconds in which the client must read something."""

    def __init__(self, transport: asyncio.Transport, flow: FlowControl, stalled: float) -> None:
        self._transport = transport
        self._flow = flow
        self._stalled = stalled
        self._loop = asyncio.get_running_loop()
        self._room: asyncio.Future[None] = self._loop.create_future()
        self._lost = False

    async def send(self, project: str, file: int, start: int, count: int) -> bool:
        """False if the connection ends before: the client leaves, or a job truncates the file.

        Threads work for `project`.
        """
        await self._empty_buffer()
        if self._lost or self._transport.is_closing():
            return False
        # The transport owns its descriptor. A copy also stays valid until no thread uses it.
        connection = os.dup(self._transport.get_extra_info("socket").fileno())
        try:
            end = start + count
            while start < end:
                size = min(end - start, _TURN_BYTES)
                sent = await _in_thread(
                    project, lambda at=start, size=size: _send(connection, file, at, size)
                )
                start += sent
                if sent < size:
                    await self._wait_for_room(connection)
                if self._lost:
                    return False
        except (ConnectionError, _Truncated):
            self._transport.abort()
            return False
        finally:
            os.close(connection)
        return True

    def lose(self) -> None:
        """The connection is lost."""
        self._lost = True
        self._wake()

    async def _empty_buffer(self) -> None:
        """What was written to the transport goes first."""
        if not self._transport.is_closing():
            self._transport.set_write_buffer_limits(0)
            await self._flow.drain()
        if not self._transport.is_closing():
            self._transport.set_write_buffer_limits()

    async def _wait_for_room(self, connection: int) -> None:
        if self._lost:
            return
        self._room = self._loop.create_future()
        self._loop.add_writer(connection, self._wake)
        looks = self._look_at(connection, _unsent(connection))
        try:
            await self._room
        finally:
            looks()
            self._loop.remove_writer(connection)

    def _wake(self) -> None:
        if not self._room.done():
            self._room.set_result(None)

    def _look_at(self, connection: int, before: int) -> Callable[[], None]:
        """Disconnects a client that reads nothing. Returns what ends that."""

        def look() -> None:
            nonlocal before, timer
            now = _unsent(connection)
            if now >= before:
                self._transport.abort()
                return
            before, timer = now, self._loop.call_later(self._stalled, look)

        timer = self._loop.call_later(self._stalled, look)
        return lambda: timer.cancel()


async def _in_thread(project: str, work: Callable[[], int]) -> int:
    """However often the caller is cancelled: it goes on after the thread is done with the descriptors."""
    task = asyncio.ensure_future(pools.disk.run(project, work))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled:
        if not task.cancelled():
            task.exception()
        raise cancelled
    return task.result()


def _send(connection: int, file: int, start: int, count: int) -> int:
    """As much as the client takes now."""
    sent, buffer = 0, _threads.buffer
    while sent < count:
        size = os.preadv(file, [buffer[: count - sent]], start + sent)
        if not size:
            raise _Truncated
        taken = _write(connection, buffer[:size])
        sent += taken
        if taken < size:
            break
    return sent


def _write(connection: int, piece: memoryview) -> int:
    taken = 0
    try:
        while taken < len(piece):
            taken += os.write(connection, piece[taken:])
    except BlockingIOError:
        pass
    return taken


def _unsent(connection: int) -> int:
    """Bytes that the client has not received."""
    size = array.array("i", [0])
    fcntl.ioctl(connection, termios.TIOCOUTQ, size)
    return size[0]
