"""The client of the supervisor: connects to the running one or starts one, sends requests, and passes messages on."""

import asyncio
import contextlib
import logging
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from turnout import pools
from turnout.engines import Unreachable
from turnout.engines.local.supervisor import messages, process
from turnout.engines.local.supervisor.connection import connect
from turnout.engines.local.supervisor.listeners import Listeners
from turnout.engines.local.supervisor.messages import Hello, SupervisorMessage
from turnout.engines.local.supervisor.process import SupervisorProcess
from turnout.engines.local.users.account import Accounts
from turnout.errors import Misconfigured
from turnout.paths import Paths
from turnout.runner.supervisor.descriptors import receive

_log = logging.getLogger(__name__)

_OLDEST_VERSION = 1
"""The oldest supervisor that works with the service of an ordinary user. Version 2 changed nothing for those."""
SYNC_SECONDS, DAMAGED_SYNC_SECONDS = 30.0, 1.0
"""If the supervisor sends nothing for so long before it is synced, the client connects again: the line that it waits
for may have been damaged. The shorter time applies after an unreadable line.
"""


class SupervisorClient:
    def __init__(
        self,
        paths: Paths,
        accounts: Accounts,
        supervisor: SupervisorProcess,
        listeners: Listeners | None,
        network: dict[str, Any] | None,
        on_message: Callable[[SupervisorMessage], None],
        on_unreadable: Callable[[bytes, Exception], None],
        on_lost: Callable[[], None],
    ) -> None:
        """`listeners` are handed to each supervisor. `network`: how it makes a private network; None: there are none.

        `on_message` is called for each line. `on_unreadable` is called for a line that cannot be decoded, or for which
        `on_message` raised. `on_lost` is called when the supervisor is gone; then call `connect` again.
        """
        self._paths = paths
        self._accounts = accounts
        self._process = supervisor
        self._listeners = listeners
        self._network = network
        self._on_message = on_message
        self._on_unreadable = on_unreadable
        self._on_lost = on_lost
        self._decoder = msgspec.json.Decoder(SupervisorMessage)
        self._socket: socket.socket | None = None
        self._connected: asyncio.Future[None]
        """Done when the supervisor has said hello."""
        self._partial_line: list[bytes] = []
        self._descriptors: deque[int] = deque()
        """Those that came along with lines, in their order."""
        self._delayed = b""
        """Requests that are sent with the next one, or when the loop runs again."""
        self._unsent = bytearray()
        """What the socket did not take yet."""
        self._synced = False
        """Whether this supervisor has sent everything that it holds."""
        self._last_received = 0.0
        self._sync_timer: asyncio.TimerHandle | None = None
        self.pid = 0
        """The supervisor's process id."""

    async def connect(self) -> None:
        """Connects to the running supervisor, or to a new one. Raises Unreachable or Misconfigured."""
        self._process.cancelled = False
        loop = asyncio.get_running_loop()
        connection = connect(self._paths.supervisor) or await pools.service.run(
            pools.OWN, self._process.start
        )
        connection.setblocking(False)
        self._socket = connection
        self._partial_line = []
        self._close_descriptors()
        self._delayed = b""
        self._unsent.clear()
        loop.add_reader(connection, self._receive)
        self._synced = False
        self._wait_for_sync(SYNC_SECONDS)
        self._connected = loop.create_future()
        try:
            self._send_hello(connection)
        except Unreachable:
            # The caller gets this error: mark the future's own as retrieved.
            self._connected.exception()
            raise
        await self._connected

    def send(self, message: object) -> None:
        """Writes to the socket at once, so that the supervisor can read it before this returns. Raises Unreachable."""
        if self._socket is None:
            raise Unreachable("the supervisor is being started again")
        self._send(self._delayed + msgspec.json.encode(message) + b"\n")

    def send_soon(self, message: object) -> None:
        """Sends it with the next message, or when the loop runs again. Raises Unreachable."""
        if self._socket is None:
            raise Unreachable("the supervisor is being started again")
        if not self._delayed:
            asyncio.get_running_loop().call_soon(self._send_delayed)
        self._delayed += msgspec.json.encode(message) + b"\n"

    def take_descriptor(self) -> int:
        """The descriptor that came with the message that is being passed on."""
        return self._descriptors.popleft()

    def close(self) -> None:
        self._process.cancelled = True
        if self._sync_timer:
            self._sync_timer.cancel()
        if self._socket is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._socket)
            loop.remove_writer(self._socket)
            self._socket.close()
            self._socket = None

    def _send_hello(self, connection: socket.socket) -> None:
        hello = messages.hello(self._network)
        if not self._listeners:
            self.send(hello)
            return
        try:
            self._listeners.send(connection, msgspec.json.encode(hello) + b"\n")
        except OSError:
            self._disconnected()
            raise Unreachable("the supervisor has ended") from None

    def _send_delayed(self) -> None:
        if self._delayed and self._socket is not None:
            with contextlib.suppress(Unreachable):
                self._send(self._delayed)

    def _send(self, data: bytes) -> None:
        assert self._socket
        self._delayed = b""
        if not self._unsent:
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._disconnected()
                raise Unreachable("the supervisor has ended") from None
            if sent == len(data):
                return
            data = data[sent:]
            asyncio.get_running_loop().add_writer(self._socket, self._send_rest)
        self._unsent += data

    def _send_rest(self) -> None:
        if self._socket is None:
            return
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self._disconnected()
            return
        if not self._unsent:
            asyncio.get_running_loop().remove_writer(self._socket)

    def _receive(self) -> None:
        if self._socket is None:
            return
        try:
            data, descriptors = receive(self._socket, 1 << 16)
            self._descriptors.extend(descriptors)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._disconnected()
            return
        if not self._synced:
            self._last_received = asyncio.get_running_loop().time()
        first, *others = data.split(b"\n")
        self._partial_line.append(first)
        if not others:
            return
        lines = [b"".join(self._partial_line), *others[:-1]]
        self._partial_line = [others[-1]]
        for line in lines:
            if not self._received(line):
                return

    def _received(self, line: bytes) -> bool:
        """False: this connection is over, and what else came on it is dropped."""
        try:
            message = self._decoder.decode(line)
            if message.hello and not self._received_hello(message.hello):
                return False
            if message.synced and not self._connected.done():
                self._reconnect()
                return False
            self._on_message(message)
            if message.synced:
                self._set_synced()
        except Exception as error:  # noqa: BLE001 each line stands alone: the next ones are read
            self._on_unreadable(line, error)
            if not self._synced and self._socket:
                self._wait_for_sync(DAMAGED_SYNC_SECONDS)
        return True

    def _received_hello(self, hello: Hello) -> bool:
        """Whether this service and this supervisor can work together."""
        oldest = messages.VERSION if self._accounts.supervisor.other else _OLDEST_VERSION
        if oldest <= hello.version <= messages.VERSION and self._has_same_uids(hello):
            self.pid = hello.pid
            self._set_connected(None)
            return True
        self.close()
        if hello.version <= messages.VERSION and process.kill(hello.pid, self._accounts.supervisor):
            _log.warning(
                "the supervisor (process %s) is of an earlier version, or gives jobs other uids: it is replaced",
                hello.pid,
            )
            self._set_connected(Unreachable("the supervisor is being replaced"))
            return False
        self._set_connected(
            Misconfigured(
                f"a supervisor of another version (process {hello.pid}) holds running jobs; "
                "let them end, or stop them with the version that started them"
            )
        )
        return False

    def _has_same_uids(self, hello: Hello) -> bool:
        uids = self._accounts.uids
        return not self._accounts.supervisor.other or hello.uids == (uids.start, uids.stop)

    def _set_connected(self, error: Exception | None) -> None:
        if self._connected.done():
            return
        if error:
            self._connected.set_exception(error)
        else:
            self._connected.set_result(None)

    def _set_synced(self) -> None:
        self._synced = True
        if self._sync_timer:
            self._sync_timer.cancel()

    def _wait_for_sync(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._last_received = loop.time()
        if self._sync_timer:
            self._sync_timer.cancel()
        self._sync_timer = loop.call_later(seconds, self._check_sync, seconds)

    def _check_sync(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        left = self._last_received + seconds - loop.time()
        if left > 0:
            self._sync_timer = loop.call_later(left, self._check_sync, seconds)
            return
        self._reconnect()

    def _reconnect(self) -> None:
        _log.warning(
            "a message of the supervisor was lost or damaged: connecting again to get everything again"
        )
        self._disconnected()

    def _disconnected(self) -> None:
        self.close()
        if self._connected.done():
            self._on_lost()
        else:
            self._set_connected(
                Unreachable(f"the supervisor ended at once; see {self._paths.supervisor / 'log'}")
            )

    def _close_descriptors(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.popleft())
