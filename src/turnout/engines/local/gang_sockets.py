"""Sockets in the private network of a gang. The supervisor makes them there and passes them to the service."""

import asyncio
import itertools
import os
import socket
from collections.abc import Callable
from typing import Protocol

from turnout.engines import Unreachable
from turnout.engines.local.supervisor import messages
from turnout.errors import WrongState
from turnout.job import Attempt

_REPLY_SECONDS = 10
_CONNECT_SECONDS = 10


class GangListeners(Protocol):
    """Serves the gateway in the networks of gangs."""

    def start(self) -> None:
        """Called when the service knows which attempts are live."""
        ...

    def opened(self, attempt: Attempt, listener: socket.socket) -> None:
        """A program of the gang connects. The listener belongs to the callee."""
        ...

    def ended(self, attempt: Attempt) -> None:
        """Closes what keeps the gang's network alive."""
        ...

    def close(self) -> None: ...


class NoGangListeners(GangListeners):
    def start(self) -> None: ...

    def opened(self, attempt: Attempt, listener: socket.socket) -> None:
        listener.close()

    def ended(self, attempt: Attempt) -> None: ...
    def close(self) -> None: ...


class GangSockets:
    """`send` takes a message to the supervisor."""

    def __init__(self, send: Callable[[object], None]) -> None:
        self._send = send
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[socket.socket]] = {}
        self._private: set[Attempt] = set()
        """Attempts that have a private network."""

    def claimed(self, attempt: Attempt, private: bool) -> None:
        if private:
            self._private.add(attempt)

    def forget(self, attempt: Attempt) -> None:
        self._private.discard(attempt)

    async def open(self, attempt: Attempt, family: int) -> socket.socket:
        """A stream socket that can be bound or connected in the gang's network. Raises WrongState or Unreachable."""
        if attempt not in self._private:
            return socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        number = next(self._numbers)
        reply = self._pending[number] = asyncio.get_running_loop().create_future()
        try:
            self._send(messages.open_socket(number, attempt, family))
            async with asyncio.timeout(_REPLY_SECONDS):
                return await reply
        except TimeoutError:
            raise Unreachable("the supervisor did not answer; an older one may still be running") from None
        finally:
            del self._pending[number]

    async def connect(self, attempt: Attempt, address: tuple[str, int]) -> socket.socket:
        """Connects to an address in the gang's network. Raises OSError as well."""
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        opened = await self.open(attempt, family)
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await asyncio.get_running_loop().sock_connect(opened, address)
        except BaseException:
            opened.close()
            raise
        return opened

    def received(self, number: int, error: str, descriptor: int) -> None:
        """The supervisor's reply: a descriptor, or an error and -1."""
        reply = self._pending.get(number)
        if reply is None or reply.done():
            if descriptor >= 0:
                os.close(descriptor)
        elif error:
            reply.set_exception(WrongState(error))
        else:
            opened = socket.socket(fileno=descriptor)
            opened.setblocking(False)
            reply.set_result(opened)
