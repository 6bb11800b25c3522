"""Private networks of gangs: taken from spares, connected to the outside at the first packet, removed with the gang.

Two helper processes belong to each gang: slirp4netns or pasta, which connects the network to the outside, and
`forward`, which serves the addresses that the settings open. The former outlives the supervisor; the next one finds it
by the first word of its command line.
"""

import contextlib
import errno
import json
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from .. import procfs
from ..channel import Message
from ..descriptors import receive
from ..diagnostics import Outage, log_message
from ..gang import Gang
from ..loop import Loop
from ..replicas import users
from ..replicas.clone import clone_into
from ..replicas.spares import QUIET
from . import forward, namespaces
from .namespaces import Options
from .outside import NAMESPACE_FD, READY_FD, outside_command
from .spawner import NetworkEntry, Spawner

_SPARES, _LOW_SPARES, _FEW_SPARES, _ORDERS_AT_ONCE = 32, 16, 8, 4
_PAUSE = 1.0
_MAKER_SECONDS = 10.0
_FRAME_BYTES = 1 << 17
_REPLY_BYTES = 64
_FRAMES = 64
_OUTSIDE, _REACH = "outside", "reach"

OnFiles = Callable[[list[int]], None]
"""Called with the files that were made; none if it failed."""


class Network:
    """Network of one gang. Its files: the namespace, the tap until a helper reads it, listeners until a helper serves
    them.
    """

    def __init__(self, namespace: int, tap: int = -1) -> None:
        self.namespace = namespace
        self.tap = tap
        self.gateway = -1
        """The listener of the gateway. The service gets a copy at the first connection."""
        self.listeners: list[tuple[int, tuple[str, int]]] = []
        self.helpers: dict[str, int] = {}
        """The pidfd of each helper, by what it does."""
        self.watched: set[int] = set()


class Networks:
    """`directory` and `lock` are the supervisor's. `watch_helper` gets the id of each process that is started. `send`
    goes to the service.
    """

    def __init__(
        self,
        directory: str,
        loop: Loop,
        watch_helper: Callable[[int], None],
        send: Callable[[Message, int], None],
        lock: int = -1,
    ) -> None:
        self._directory = directory
        self._lock = lock
        self._loop = loop
        self._watch_helper = watch_helper
        self._send = send
        self._options: Options | None = None
        self._user_namespace = -1
        """The user namespace that owns all networks."""
        self._maker: socket.socket | None = None
        self._spawner: Spawner | None = None
        self._callbacks: deque[OnFiles] = deque()
        self._received: list[int] = []
        """Files from the maker that may be used once its next message has come."""
        self._spares: list[Network] = []
        self._ordered = 0
        self._networks: dict[str, Network] = {}
        self._quiet_from = 0.0
        self._not_before = self._no_spawner_before = 0.0
        self._outage = Outage("no network can be made for a gang")

    def configure(self, settings: dict[str, Any] | None) -> None:
        """Sets the options of networks that are made from now on; None: the service needs none."""
        options = Options.of(settings) if settings else None
        if options != self._options:
            self._options = options
            while self._spares:
                self._discard(self._spares.pop())
            if self._maker is not None and options:
                self._notify(namespaces.SETTINGS + json.dumps(options._asdict()).encode(), [])
        for attempt, network in self._networks.items():
            self._restore(attempt, network)

    def order_spare(self) -> bool:
        """Orders one spare if there are too few. Called when the supervisor is idle."""
        self._prepare_spawner()
        self._order_below(_FEW_SPARES if time.monotonic() < self._quiet_from else _SPARES)
        return False

    def assign(self, gang: Gang) -> NetworkEntry:
        """Gives the gang its network, if it has none yet. Raises OSError."""
        network = self._networks.get(gang.attempt)
        if network is None:
            self._quiet_from = time.monotonic() + QUIET
            if not self._spares:
                self._wait_for_spare()
            network = self._networks[gang.attempt] = self._spares.pop()
            # While many jobs start, the supervisor is never idle, and would have to wait for each network.
            self._order_below(_LOW_SPARES)
            self._watch_network(gang.attempt, network)
        self._prepare_spawner()
        return NetworkEntry(self._user_namespace, network.namespace, self._spawner)

    def user_namespace_entry(self, gang: Gang) -> Callable[[], None]:
        """Returns a function with which a child enters the user namespace of the gang's network, if there is one."""
        user = self._user_namespace if gang.network and gang.user != users.OWN else -1
        return lambda: namespaces.enter_user(user)

    def release(self, gang: Gang) -> None:
        """Removes the network if the whole gang has ended."""
        if gang.ended and (network := self._networks.pop(gang.attempt, None)):
            self._discard(network)

    def open_socket(self, number: int, attempt: str, family: int) -> None:
        """Sends the service a socket in the gang's network, or the reason why there is none."""

        def made(files: list[int]) -> None:
            if files:
                self._send({"socket": [number, ""]}, files[0])
            else:
                self._send({"socket": [number, "no socket could be made in its network"]}, -1)

        if network := self._networks.get(attempt):
            self._request(namespaces.SOCKET + str(family).encode(), [network.namespace], made)
        else:
            self._send({"socket": [number, "it is not running, or has no network of its own"]}, -1)

    def adopt(self, gangs: dict[str, Gang]) -> None:
        """Takes over networks of an earlier supervisor through the processes in them. Helpers of other networks are
        killed.
        """
        for gang in gangs.values():
            if gang.network and not gang.ended:
                self._adopt(gang)
        for pid, kind, attempt in self._helpers():
            network = self._networks.get(attempt)
            with contextlib.suppress(OSError):
                if network and kind not in network.helpers:
                    self._watch(attempt, network, kind, pid)
                else:
                    os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        while self._networks:
            self._discard(self._networks.popitem()[1])
        self._disconnect()
        if self._spawner:
            self._spawner.close()

    # Making networks.

    def _adopt(self, gang: Gang) -> None:
        for replica in gang.replicas.values():
            if replica.ended or not replica.pid or procfs.start_time(replica.pid) != replica.start_time:
                continue
            with contextlib.suppress(OSError):
                namespace = os.open(f"/proc/{replica.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
                self._networks[gang.attempt] = Network(namespace)
                if self._user_namespace < 0 and namespaces.maps_all_users(replica.pid):
                    self._user_namespace = namespaces.owner_of(namespace)
                return

    def _helpers(self) -> Iterator[tuple[int, str, str]]:
        """Process id, what it does, and for which attempt."""
        start = self._tag("", "")
        for entry in os.listdir("/proc"):
            if not entry.isdecimal():
                continue
            with contextlib.suppress(OSError):
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    name = os.fsdecode(file.read().split(b"\0")[0])
                # A job can use the same name, but its user namespace is not a child of the supervisor's.
                if name.startswith(start) and namespaces.is_child_of_own(f"/proc/{entry}/ns/user"):
                    kind, attempt, *_ = (*name.removeprefix(start).split(":"), "")
                    yield int(entry), kind, attempt

    def _tag(self, kind: str, attempt: str) -> str:
        start = f"turnout-network:{self._directory}:"
        return f"{start}{kind}:{attempt}:" if kind else start

    def _order_below(self, wanted: int) -> None:
        """Orders one spare if there are fewer, with those on their way."""
        few = len(self._spares) + self._ordered < wanted and self._ordered < _ORDERS_AT_ONCE
        if self._options and few and time.monotonic() >= self._not_before:
            self._order()

    def _order(self) -> None:
        self._ordered += 1
        options = self._options
        self._request(namespaces.NEW, [], lambda files: self._add_spare(files, options))

    def _add_spare(self, files: list[int], options: Options | None) -> None:
        self._ordered -= 1
        if not files:
            self._outage.failed(OSError(errno.EIO, "the process that makes networks failed"))
            self._not_before = time.monotonic() + _PAUSE
        elif options is None or options != self._options:
            _close(files)
        else:
            self._outage.recovered()
            network = Network(files.pop(0), files.pop(0) if options.outside else -1)
            network.gateway = files.pop(0) if options.gateway else -1
            network.listeners = list(zip(files, options.reach, strict=True))
            self._spares.append(network)

    def _wait_for_spare(self) -> None:
        """Raises OSError."""
        if not self._options:
            raise OSError(errno.ENOTSUP, "the supervisor has not received the network settings")
        if not self._ordered:
            self._order()
        while self._ordered and not self._spares:
            self._receive()
        if not self._spares:
            raise OSError(errno.EIO, "no network can be made for it")

    def _request(self, message: bytes, files: list[int], callback: OnFiles) -> None:
        try:
            _send(self._connect_maker(), message, files)
        except OSError as error:
            log_message(f"the process that makes networks: {error}")
            callback([])
            return
        self._callbacks.append(callback)

    def _notify(self, message: bytes, files: list[int]) -> None:
        with contextlib.suppress(OSError):
            _send(self._connect_maker(), message, files)

    def _connect_maker(self) -> socket.socket:
        if self._maker is None:
            pid, self._maker, self._user_namespace = namespaces.fork_maker(
                self._user_namespace, self._options or Options()
            )
            self._watch_helper(pid)
            self._maker.settimeout(_MAKER_SECONDS)
            self._loop.add(self._maker.fileno(), self._receive)
        return self._maker

    def _receive(self) -> None:
        if self._maker is None:
            return
        try:
            message, files = receive(self._maker, _REPLY_BYTES)
        except OSError:
            message, files = b"", []
        if files:
            self._received = files
        elif message and self._callbacks:
            files, self._received = self._received, []
            self._callbacks.popleft()(files)
        else:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._maker is not None:
            self._loop.remove(self._maker.fileno())
            self._maker.close()
            self._maker = None
        _close(self._received)
        self._received.clear()
        callbacks, self._callbacks = self._callbacks, deque()
        for callback in callbacks:
            callback([])

    def _prepare_spawner(self) -> None:
        """Starts the spawner if there is none. Without one, sandboxes start more slowly."""
        if self._spawner or self._user_namespace < 0 or time.monotonic() < self._no_spawner_before:
            return
        self._no_spawner_before = time.monotonic() + _PAUSE
        try:
            spawner = self._spawner = Spawner(self._user_namespace, self._lock)
        except OSError as error:
            log_message(f"the process that starts sandboxes in networks: {error}")
            return
        self._watch_helper(spawner.pid)
        self._loop.add(spawner.fd, lambda: self._on_spawner_ended(spawner))

    def _on_spawner_ended(self, spawner: Spawner) -> None:
        if spawner.has_ended():
            self._loop.remove(spawner.fd)
            spawner.close()
            self._spawner = None

    def _discard(self, network: Network) -> None:
        for pidfd in network.helpers.values():
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            self._loop.remove(pidfd)
            os.close(pidfd)
        network.helpers.clear()
        for fd in network.watched:
            self._loop.remove(fd)
        network.watched.clear()
        files = [network.namespace, *(fd for fd, _ in network.listeners)]
        files += [fd for fd in (network.tap, network.gateway) if fd >= 0]
        network.tap = network.namespace = network.gateway = -1
        network.listeners.clear()
        # Whoever closes them last waits for the kernel. That is the maker.
        self._notify(namespaces.CLOSE, files)
        _close(files)

    # Connecting networks.

    def _watch_network(self, attempt: str, network: Network) -> None:
        """Watches for the first packet to the outside, and for connections to the gateway and to opened addresses."""
        if network.gateway >= 0 and network.gateway not in network.watched:
            self._loop.add(network.gateway, lambda: self._hand_over_gateway(attempt, network))
            network.watched.add(network.gateway)
        if network.tap >= 0 and network.tap not in network.watched:
            self._loop.add(network.tap, lambda: self._connect_outside(attempt, network))
            network.watched.add(network.tap)
        for fd, _ in network.listeners:
            if fd not in network.watched:
                self._loop.add(fd, lambda: self._forward(attempt, network))
                network.watched.add(fd)

    def _restore(self, attempt: str, network: Network) -> None:
        """Restores what an adopted network, or one that lost a helper, lacks."""
        options, namespace = self._options, [network.namespace]
        if options is None or network.namespace < 0:
            return
        if options.outside and network.tap < 0 and _OUTSIDE not in network.helpers:
            self._request(
                namespaces.TAP_AGAIN, namespace, lambda files: self._on_opened(attempt, network, files)
            )
        self._restore_gateway(attempt, network)
        if network.listeners or _REACH in network.helpers:
            return
        for address in options.reach:
            message = namespaces.LISTEN + json.dumps(address).encode()
            self._request(
                message,
                namespace,
                lambda files, address=address: self._on_opened(attempt, network, files, address),
            )

    def _restore_gateway(self, attempt: str, network: Network) -> None:
        """A new service gets the listener again; a new supervisor makes it again."""
        if network.gateway >= 0:
            self._watch_network(attempt, network)
            return
        if self._options is None or not self._options.gateway or network.namespace < 0:
            return

        def opened(files: list[int]) -> None:
            if files and network.namespace >= 0 and network.gateway < 0:
                network.gateway = files[0]
                self._watch_network(attempt, network)
            else:
                _close(files)

        message = namespaces.LISTEN + json.dumps(namespaces.GATEWAY).encode()
        self._request(message, [network.namespace], opened)

    def _hand_over_gateway(self, attempt: str, network: Network) -> None:
        """A program connects to the gateway: the service gets the listener, and accepts this and later connections.

        Without a service the connection waits for the next one, see `_restore`.
        """
        self._unwatch(network, network.gateway)
        self._send({"gateway": attempt}, os.dup(network.gateway))

    def _on_opened(
        self, attempt: str, network: Network, files: list[int], address: tuple[str, int] | None = None
    ) -> None:
        if not files or network.namespace < 0:
            _close(files)
            return
        if address:
            network.listeners.append((files[0], address))
        else:
            network.tap = files[0]
        self._watch_network(attempt, network)

    def _connect_outside(self, attempt: str, network: Network) -> None:
        """The gang sent its first packets: starts the helper that reads the tap, and passes these packets on to it."""
        options, tap = self._options, network.tap
        if options is None or tap < 0:
            return
        frames = _read(tap)
        self._unwatch(network, tap)
        os.close(tap)  # only one process may have it open
        network.tap = -1
        ready_read, ready_write = os.pipe2(os.O_CLOEXEC)
        argv = outside_command(options, self._tag(_OUTSIDE, attempt))
        before_exec = lambda: namespaces.keep_network_rights(self._user_namespace, options.tun)  # noqa: E731
        try:
            with open(os.devnull, "wb") as null:
                files = {
                    1: null.fileno(),
                    2: null.fileno(),
                    NAMESPACE_FD: network.namespace,
                    READY_FD: ready_write,
                }
                pid = clone_into(-1, options.outside, argv, {}, files, before_exec)
            self._on_helper_started(attempt, network, _OUTSIDE, pid)
        except OSError as error:
            self._on_helper_failed(attempt, network, _OUTSIDE, error)
        os.close(ready_write)
        self._loop.add(ready_read, lambda: self._on_outside_ready(network, ready_read, frames))

    def _on_outside_ready(self, network: Network, ready_read: int, frames: list[bytes]) -> None:
        self._loop.remove(ready_read)
        ready = os.read(ready_read, 1)
        os.close(ready_read)
        if ready and network.namespace >= 0:
            for frame in frames:
                self._notify(namespaces.SEND + frame, [network.namespace])

    def _forward(self, attempt: str, network: Network) -> None:
        """A program connects to an opened address: starts the helper, which accepts the connection."""
        listeners, network.listeners = network.listeners, []
        for fd, _ in listeners:
            self._unwatch(network, fd)
        try:
            self._on_helper_started(attempt, network, _REACH, forward.fork(listeners))
        except OSError as error:
            self._on_helper_failed(attempt, network, _REACH, error)
        _close([fd for fd, _ in listeners])

    def _unwatch(self, network: Network, fd: int) -> None:
        if fd in network.watched:
            network.watched.discard(fd)
            self._loop.remove(fd)

    def _on_helper_started(self, attempt: str, network: Network, kind: str, pid: int) -> None:
        self._watch_helper(pid)
        self._watch(attempt, network, kind, pid)

    def _on_helper_failed(self, attempt: str, network: Network, kind: str, error: OSError) -> None:
        log_message(f"{attempt}: the helper of its network ({kind}) could not be started: {error}")
        self._loop.call_later(_PAUSE, lambda: self._restore(attempt, network))

    def _watch(self, attempt: str, network: Network, kind: str, pid: int) -> None:
        pidfd = network.helpers[kind] = os.pidfd_open(pid)
        self._loop.add(pidfd, lambda: self._on_helper_ended(attempt, network, kind, pidfd))

    def _on_helper_ended(self, attempt: str, network: Network, kind: str, pidfd: int) -> None:
        if network.helpers.get(kind) != pidfd:
            return
        log_message(f"{attempt}: the helper of its network ({kind}) has ended and is started again")
        del network.helpers[kind]
        self._loop.remove(pidfd)
        os.close(pidfd)
        self._loop.call_later(_PAUSE, lambda: self._restore(attempt, network))


def _read(tap: int) -> list[bytes]:
    frames: list[bytes] = []
    with contextlib.suppress(OSError):
        while len(frames) < _FRAMES:
            frames.append(os.read(tap, _FRAME_BYTES))
    return frames


def _send(line: socket.socket, message: bytes, files: list[int]) -> None:
    if files:
        socket.send_fds(line, [message], files)
    else:
        line.send(message)


def _close(files: list[int]) -> None:
    for fd in files:
        os.close(fd)
