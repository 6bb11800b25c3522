"""The messages between service and supervisor: lines of JSON both ways over a Unix socket.

From the service: hello, launch, again, stop, forget, follow, shell, socket, and about listening sockets hold, take,
stopping. To the service: hello, claim, started, stop, ended, trimmed, again, pump (the journal lines of each gang),
grew, synced, shell, held, socket (with a file). The names stay, because supervisors outlive an upgrade of the service:
`again` is a restart, `pump` a log encrypter.
"""

import json
import os
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from .descriptors import receive
from .diagnostics import run_safely

Message = dict[str, Any]

VERSION = 2
"""From version 2 on a supervisor that was started as root runs the jobs of each project as a user of its own."""

_MOST = 64 << 20
_PIECE = 1 << 16
"""A larger buffer would be new memory from the kernel for each read."""


def _read(line: bytes, handle: Callable[[Message], None]) -> None:
    handle(json.loads(line))


class MessageChannel:
    """One connected service. Messages are collected and sent by `flush`, once in each round of the loop."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.fd = connection.fileno()
        self._in: list[bytes] = []
        """Parts of a line that is not complete yet."""
        self._out: list[str] = []
        self._unsent = bytearray()
        self.fds: list[int] = []
        """Descriptors that came with a message that is not handled yet."""
        self._files: deque[tuple[int, int]] = deque()
        """Files to send, each with the position in the output stream that it goes with."""
        self._sent = 0

    def receive(self, handle: Callable[[Message], None]) -> bool:
        """False if the service has disconnected."""
        try:
            data, files = receive(self.connection, _PIECE)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        self.fds += files
        first, *others = data.split(b"\n")
        self._in.append(first)
        if others:
            lines = [b"".join(self._in), *others[:-1]]
            self._in = [others[-1]]
            for line in lines:
                run_safely(partial(_read, line, handle))
        return True

    def send(self, text: str, file: int = -1) -> None:
        """Queues an encoded message. `file` goes with it and is then closed here."""
        if file >= 0:
            self._collect()
            self._files.append((self._sent + len(self._unsent), file))
        self._out.append(text)

    def send_now(self, text: str, fds: list[int]) -> None:
        """Sends a message and descriptors at once, before anything else was sent to this service."""
        socket.send_fds(self.connection, [text.encode() + b"\n"], fds)

    def _collect(self) -> None:
        if self._out:
            self._out.append("")
            self._unsent += "\n".join(self._out).encode()
            self._out.clear()

    def flush(self) -> bool:
        """True if everything is sent; otherwise call again when the socket is writable. Raises OSError if the service
        is gone.
        """
        self._collect()
        while self._unsent:
            try:
                sent = self._send_some()
            except BlockingIOError:
                break
            self._sent += sent
            del self._unsent[:sent]
            if not self._files:
                break
        if len(self._unsent) > _MOST:
            raise BrokenPipeError("the service does not read")
        return not self._unsent

    def _send_some(self) -> int:
        """Sends up to the position of the next file. A file arrives with the first byte that is sent with it."""
        if not self._files:
            return self.connection.send(self._unsent)
        if before := self._files[0][0] - self._sent:
            return self.connection.send(self._unsent[:before])
        after = self._files[1][0] - self._sent if len(self._files) > 1 else len(self._unsent)
        sent = socket.send_fds(self.connection, [self._unsent[:after]], [self._files[0][1]])
        os.close(self._files.popleft()[1])
        return sent

    def close(self) -> None:
        for _, file in self._files:
            os.close(file)
        self._files.clear()
        self.connection.close()
        for fd in self.fds:
            os.close(fd)
