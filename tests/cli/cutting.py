"""A wire to the service that breaks connections in the middle."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator


class Wire:
    """Breaks a connection after so many bytes in one direction, a given number of times."""

    def __init__(self, port: int, after: int, times: int, up: bool, meanwhile: Callable[[], object]) -> None:
        self._port, self._after, self._up, self._meanwhile = port, after, up, meanwhile
        self.times = times
        """How often it has yet to break."""
        self._sockets = [socket.create_server(("127.0.0.1", 0))]
        self.endpoint = f"http://127.0.0.1:{self._sockets[0].getsockname()[1]}"
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def close(self) -> None:
        for one in self._sockets:
            _shut(one)
        for one in self._threads:
            one.join()
        for one in self._sockets:
            one.close()

    def _start(self, run: Callable[..., None], *words: object) -> None:
        self._threads.append(threading.Thread(target=run, args=words))
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._sockets[0].accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                self._sockets += [client, server]
                self._start(self._pump, client, server, self._up)
                self._start(self._pump, server, client, not self._up)

    def _pump(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                passed += len(data)
                if counted and passed > self._after and self.times:
                    self.times -= 1
                    self._meanwhile()
                    break
                sink.sendall(data)
        _shut(source)
        _shut(sink)


@contextlib.contextmanager
def cutting(
    port: int, after: int, times: int, up: bool = False, meanwhile: Callable[[], object] = lambda: None
) -> Iterator[Wire]:
    wire = Wire(port, after, times, up, meanwhile)
    try:
        yield wire
    finally:
        wire.close()


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
