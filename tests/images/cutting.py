"""A proxy in front of a registry that cuts connections when it has sent enough."""

import contextlib
import socket
import threading
from collections.abc import Iterator


class Proxy:
    def __init__(self, target: str) -> None:
        host, _, port = target.partition(":")
        self._target = host, int(port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._server.getsockname()[1]}"
        self.budget = 1 << 30
        """How many bytes it still sends before it cuts every connection."""
        self.sent = 0
        self.cut = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                server = socket.create_connection(self._target)
                for source, target, counted in ((client, server, False), (server, client, True)):
                    thread = threading.Thread(target=self._pump, args=(source, target, counted))
                    thread.start()
                    self._threads.append(thread)

    def _pump(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 14):
                if counted:
                    if self.budget < len(data):
                        self.cut.set()
                        break
                    self.budget -= len(data)
                    self.sent += len(data)
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        if counted:
            source.close()
            target.close()


@contextlib.contextmanager
def cutting(target: str) -> Iterator[Proxy]:
    proxy = Proxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
