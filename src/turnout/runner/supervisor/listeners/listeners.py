"""The service's listening sockets. The supervisor holds copies while the service is away, so that nobody takes its
ports.

While a service is connected, only the service accepts connections. If it disconnects without notice, its clients wait
in the sockets' queues. If it announced that it stops, or does not come back in time, they get 503.
"""

import contextlib
import os
import socket
import traceback
from collections.abc import Iterable
from typing import Any

from ..channel import Message, MessageChannel
from ..diagnostics import log_message
from ..loop import Loop, Timer
from ..recovery.journal import encode
from .unavailable import Connection, UnavailableResponder
from .unavailable_tls import tls_connections


class HeldListeners:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._names: list[Any] = []
        """What each socket is for, as the service calls it."""
        self._sockets: list[socket.socket] = []
        self._tls: list[int] = []
        """Descriptors of the certificate and its key, or none."""
        self._wait_seconds = 0.0
        self._stopping = False
        self._unavailable = UnavailableResponder(loop)
        self._timer: Timer | None = None

    @property
    def waiting(self) -> bool:
        """The service is expected back."""
        return self._timer is not None

    def handle(self, message: Message, channel: MessageChannel) -> bool:
        """Handles messages about listening sockets; returns False for others. It does so at once: the service may be
        gone by the time the work that it asked for before is done.
        """
        match message["t"]:
            case "hold":
                fds, channel.fds = channel.fds, []
                self._hold(message["sockets"], fds, message["tls"], message["patience"])
            case "take":
                self._keep_only(message["wanted"])
                with contextlib.suppress(OSError):  # the service is gone again
                    channel.send_now(encode({"held": self._names}), [held.fileno() for held in self._sockets])
            case "stopping":
                self._stopping = True
            case _:
                return False
        return True

    def _hold(self, names: list[Any], fds: list[int], tls: bool, patience: float) -> None:
        """Holds these sockets and no others. With `tls`, the last two descriptors are a certificate and its key."""
        old_sockets, old_tls = self._sockets, self._tls
        count = len(fds) - 2 if tls else len(fds)
        self._names, self._wait_seconds = names, patience
        self._sockets = [socket.socket(fileno=fd) for fd in fds[:count]]
        self._tls = fds[count:]
        _close(old_sockets, old_tls)

    def _keep_only(self, wanted: list[Any]) -> None:
        both = list(zip(self._names, self._sockets, strict=True))
        _close([held for name, held in both if name not in wanted], ())
        kept = [pair for pair in both if pair[0] in wanted]
        self._names, self._sockets = [name for name, _ in kept], [held for _, held in kept]

    def on_connect(self) -> None:
        self._stopping = False
        if self._timer:
            self._timer.cancel()
            self._timer = None
        self._unavailable.stop()

    def on_disconnect(self) -> None:
        if not self._sockets:
            return
        if self._stopping:
            self._start_answering()
        else:
            self._timer = self._loop.call_later(self._wait_seconds, self._on_timeout)

    def close(self) -> None:
        self._unavailable.stop()
        _close(self._sockets, self._tls)
        self._names, self._sockets, self._tls = [], [], []

    def _on_timeout(self) -> None:
        self._timer = None
        self._start_answering()

    def _start_answering(self) -> None:
        """Answers clients with 503. If that fails, they wait."""
        listening = [
            held for held in self._sockets if held.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        ]
        try:
            self._unavailable.start(listening, tls_connections(*self._tls) if self._tls else Connection)
        except Exception:  # noqa: BLE001 supervising must go on
            log_message(traceback.format_exc())


def _close(sockets: Iterable[socket.socket], fds: Iterable[int]) -> None:
    for held in sockets:
        held.close()
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)
