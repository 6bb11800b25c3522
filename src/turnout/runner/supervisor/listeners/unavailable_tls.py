"""As `unavailable`, over TLS.

It is imported at the start, because the supervisor may later be a user who cannot read the library.
"""

import contextlib
import socket
import ssl

from ..loop import READ, WRITE
from .unavailable import Connection, NewConnection


def tls_connections(certificate: int, key: int) -> NewConnection:
    """Returns a factory of TLS connections. Both arguments are descriptors of PEM files, which may exist only in
    memory.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"/proc/self/fd/{certificate}", f"/proc/self/fd/{key}")
    return lambda peer: SecureConnection(peer, context)


class SecureConnection(Connection):
    max_connections = 32
    """Few, because the supervisor does nothing else while it computes a handshake."""

    def __init__(self, peer: socket.socket, context: ssl.SSLContext) -> None:
        peer.setblocking(False)
        self._secure = context.wrap_socket(peer, server_side=True, do_handshake_on_connect=False)
        super().__init__(self._secure)
        self._handshake_done = False

    def step(self) -> int:
        try:
            if not self._handshake_done:
                self._secure.do_handshake()
                self._handshake_done = True
            # Data that TLS has already read does not wake the loop.
            while (more := self.read()) and self._secure.pending():
                pass
        except ssl.SSLWantReadError:
            return READ
        except ssl.SSLWantWriteError:
            return WRITE
        except OSError:
            return 0
        return READ if more else 0

    def end_writing(self) -> None:
        with contextlib.suppress(OSError):
            self._secure.unwrap()  # sends close_notify, and does not wait for the client's
        super().end_writing()
