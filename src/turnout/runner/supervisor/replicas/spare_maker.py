"""A process that makes spares, so that the supervisor can start programs meanwhile. It ends with the supervisor."""

import contextlib
import errno
import os
import signal
import socket
from collections import Counter
from collections.abc import Callable

from ..loop import Loop
from . import users

_PACKET = 1 << 16
_TOGETHER = 8
"""The process sends this many spares in one packet, because each packet wakes the supervisor."""

OnMade = Callable[[int, str], None]
"""Called with the user and the path of a spare."""


class SpareMaker:
    """`make` makes a spare for a user, in the process. `watch_helper` gets the id of each process that is started.
    `on_failed` is called when the process could not make a spare or was killed; then what it had not made is not made.
    """

    def __init__(
        self,
        loop: Loop,
        watch_helper: Callable[[int], None],
        make: Callable[[int], str],
        on_made: OnMade,
        on_failed: Callable[[OSError], None],
    ) -> None:
        self._loop = loop
        self._watch_helper = watch_helper
        self._make = make
        self._on_made, self._on_failed = on_made, on_failed
        self._connection: socket.socket | None = None
        self.ordered = Counter[int]()
        """Spares that are ordered and not made yet, by user."""

    @property
    def running(self) -> bool:
        return self._connection is not None

    def order(self, user: int, count: int) -> None:
        """Orders spares. Starts the process if it does not run."""
        try:
            connection = self._connection or self._start()
            connection.send(f"{user} {count}".encode())
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(error)
            return
        self.ordered[user] += count

    def receive(self) -> None:
        """Takes the spares that have been made."""
        while self._connection:
            try:
                packet = self._connection.recv(_PACKET)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            number, *paths = os.fsdecode(packet).split("\0")
            if not paths:
                error = int(number or errno.ECHILD)
                self._fail(OSError(error, os.strerror(error)))
                return
            self.ordered[int(number)] -= len(paths)
            for path in paths:
                self._on_made(int(number), path)

    def close(self) -> None:
        if self._connection:
            self._loop.remove(self._connection.fileno())
            self._connection.close()
            self._connection = None
        self.ordered.clear()

    def _fail(self, error: OSError) -> None:
        self.close()
        self._on_failed(error)

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            try:
                _become_maker(theirs.fileno())
                _serve(theirs, self._make)
            finally:
                os._exit(0)
        theirs.close()
        ours.setblocking(False)
        self._watch_helper(pid)
        self._connection = ours
        self._loop.add(ours.fileno(), self.receive)
        return ours


# In the process.


def _become_maker(connection: int) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.closerange(3, connection)
    os.closerange(connection + 1, 1 << 20)
    if users.uids():
        users.keep_capabilities(users.CHANGE_USER)


def _serve(connection: socket.socket, make: Callable[[int], str]) -> None:
    """A failure ends the process. The next one is started when the supervisor can make spares again."""
    while packet := connection.recv(_PACKET):
        user, count = map(int, packet.split())
        for first in range(0, count, _TOGETHER):
            made: list[str] = []
            failed = 0
            for _ in range(min(_TOGETHER, count - first)):
                try:
                    made.append(make(user))
                except OSError as error:
                    failed = error.errno or errno.EIO
                    break
            if made:
                connection.send(os.fsencode("\0".join([str(user), *made])))
            if failed:
                with contextlib.suppress(OSError):
                    connection.send(str(failed).encode())
                return
