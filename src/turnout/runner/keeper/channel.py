"""The socket that the service talks through: lines of JSON both ways, one service at a time.

From the service: hello, launch, again, stop, forget, follow, shell.
To it: hello, gang, started, ended, trimmed, grew, synced, shell.
"""

import json
import socket
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]

VERSION = 1

_MOST = 64 << 20
_PIECE = 1 << 16
"""More would be fresh memory from the kernel each time."""


class Channel:
    """One connected service. What is sent is collected and goes out with `flush`, once for each turn of the loop."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.fd = connection.fileno()
        self._in: list[bytes] = []
        """The parts of a line whose end has not come."""
        self._out: list[str] = []
        self._unsent = bytearray()

    def receive(self, handle: Callable[[Message], None]) -> bool:
        """False when the other side is gone."""
        try:
            data = self.connection.recv(_PIECE)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        first, *others = data.split(b"\n")
        self._in.append(first)
        if others:
            lines = [b"".join(self._in), *others[:-1]]
            self._in = [others[-1]]
            for line in lines:
                handle(json.loads(line))
        return True

    def send(self, text: str) -> None:
        """A message, encoded."""
        self._out.append(text)

    def flush(self) -> bool:
        """True when all is sent; False: call again once the socket can be written. Raises OSError if it is gone."""
        if self._out:
            self._out.append("")
            self._unsent += "\n".join(self._out).encode()
            self._out.clear()
        if not self._unsent:
            return True
        try:
            sent = self.connection.send(self._unsent)
        except BlockingIOError:
            sent = 0
        del self._unsent[:sent]
        if len(self._unsent) > _MOST:
            raise BrokenPipeError("the service does not read")
        return not self._unsent

    def close(self) -> None:
        self.connection.close()
