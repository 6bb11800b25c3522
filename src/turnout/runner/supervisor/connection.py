"""The connection to the service: one service at a time, on the socket that the supervisor listens on."""

import os
import socket
from collections.abc import Callable

from .channel import Message, MessageChannel
from .diagnostics import run_safely
from .listeners.listeners import HeldListeners
from .loop import READ, WRITE, Loop
from .recovery.journal import encode


class ServiceConnection:
    """`on_message` gets every message except those about listening sockets, which `listeners` handles at once."""

    def __init__(
        self,
        loop: Loop,
        listener: socket.socket,
        listeners: HeldListeners,
        on_message: Callable[[Message], None],
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._listeners = listeners
        self._on_message = on_message
        self._channel: MessageChannel | None = None
        self._writing = False
        """The socket's buffer is full: the loop waits until it is writable."""

    @property
    def is_open(self) -> bool:
        return self._channel is not None

    def listen(self) -> None:
        self._listener.setblocking(False)
        self._loop.add(self._listener.fileno(), self.accept)

    def accept(self) -> None:
        """A new service replaces the connected one. Does nothing if no service is connecting."""
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        self.close()
        self._listeners.on_connect()
        self._channel = MessageChannel(connection)
        self._writing = False
        self._loop.add(self._channel.fd, self._receive)

    def send(self, message: Message, file: int = -1) -> None:
        """Queues a message until `flush`. `file` goes with it and is then closed here."""
        if self._channel:
            self._channel.send(encode(message), file)
        elif file >= 0:
            os.close(file)

    def send_encoded(self, texts: list[str]) -> None:
        if self._channel:
            for text in texts:
                self._channel.send(text)

    def flush(self) -> None:
        if not self._channel:
            return
        try:
            done = self._channel.flush()
        except OSError:
            self.close()
            return
        if done == self._writing:
            self._writing = not done
            self._loop.modify(self._channel.fd, READ | WRITE if self._writing else READ)

    def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel:
            run_safely(lambda: self._loop.remove(channel.fd))
            run_safely(channel.close)
            run_safely(self._listeners.on_disconnect)

    def _receive(self) -> None:
        if not self._channel:
            return
        if self._writing:
            self.flush()
        if self._channel and not self._channel.receive(self._handle):
            self.close()

    def _handle(self, message: Message) -> None:
        if not (self._channel and self._listeners.handle(message, self._channel)):
            self._on_message(message)
