"""The spawner: a process that starts sandboxes in the networks of gangs.

Only a process in the user namespace of the networks can enter one, and no process can leave that user namespace again.
So without a spawner each start needs a copy of the supervisor that enters and then executes the sandbox, and the copy
takes milliseconds. The spawner is in the user namespace already: it enters the network, spawns without a copy, and
returns to an empty network of its own.

It is the parent of what it starts, and waits for such a process only when the supervisor asks, so that its id stays
valid until then. If the spawner ends, its children become the supervisor's. Until then it holds the supervisor's lock:
no other supervisor starts while a sandbox is on the way to its exec.
"""

import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterator
from resource import RLIMIT_DATA, RLIMIT_NOFILE, RLIMIT_NPROC, getrlimit, setrlimit
from typing import Any, NoReturn

from .. import priority, procfs
from ..descriptors import receive
from ..diagnostics import log_message
from ..replicas import users
from ..replicas.clone import RESET_SIGNALS, Files
from . import namespaces

_MESSAGE_BYTES = 1 << 16
_SECONDS = 10.0
_LIMITS = (RLIMIT_NOFILE, RLIMIT_NPROC, RLIMIT_DATA)

Request = dict[str, Any]


class Gone(Exception):
    """The spawner has ended, and so has every process that it started and that had not executed its program yet."""


class Spawner:
    """The supervisor's side."""

    def __init__(self, user_namespace: int, lock: int) -> None:
        """`lock` is the supervisor's lock, or -1. Raises OSError."""
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            _become_spawner(theirs, user_namespace, lock)
        theirs.close()
        self._pidfd = os.pidfd_open(self.pid)
        self._connection.settimeout(_SECONDS)

    @property
    def fd(self) -> int:
        """It is ready to be read when the spawner has ended; -1: closed."""
        return self._connection.fileno()

    def spawn(
        self, network: int, argv: list[str], environment: dict[str, str], files: Files, user: int
    ) -> int | None:
        """Starts a program in the network, with the limits that the supervisor has now. Returns its process id, or None
        if the request is too long. Raises Gone, or the OSError of the exec.
        """
        request = {
            "argv": argv,
            "environment": environment,
            "numbers": list(files),
            "user": user,
            "limits": [(kind, getrlimit(kind)) for kind in _LIMITS],
            "cores": list(os.sched_getaffinity(0)),
        }
        message = json.dumps(request).encode()
        if len(message) > _MESSAGE_BYTES:
            return None
        pid = self._ask(message, [network, *files.values()])[0]
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid), argv[0])
        return pid

    def wait(self, pid: int) -> procfs.Exit | None:
        """How a process that has ended did so. None: it is not a child of the spawner any more."""
        try:
            status = self._ask(json.dumps({"wait": pid}).encode(), [])[0]
        except Gone:
            return None
        return None if status < 0 else procfs.exit_from_status(status)

    def has_ended(self) -> bool:
        try:
            return self.fd < 0 or not self._connection.recv(_MESSAGE_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        if self.fd >= 0:
            self._connection.close()
            os.close(self._pidfd)

    def _ask(self, message: bytes, files: list[int]) -> list[int]:
        if self.fd < 0:
            raise Gone
        try:
            socket.send_fds(self._connection, [message], files)
            reply = self._connection.recv(_MESSAGE_BYTES)
        except OSError:
            reply = b""
        if not reply:
            self._end()
            raise Gone
        return json.loads(reply)

    def _end(self) -> None:
        """Waits until it and its children that have executed nothing are gone: these hold the connection open too."""
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        with contextlib.suppress(OSError):
            while self._connection.recv(_MESSAGE_BYTES):
                pass


class NetworkEntry:
    """How a process gets into the network of its gang."""

    def __init__(self, user_namespace: int, network: int, spawner: Spawner | None) -> None:
        self._user_namespace = user_namespace
        self._network = network
        self.spawner = spawner

    def enter(self) -> None:
        """In a child before its exec. Raises OSError."""
        namespaces.enter(self._user_namespace, self._network)

    def spawn(
        self, argv: list[str], environment: dict[str, str], files: Files, user: int, key: str
    ) -> int | None:
        """Has the spawner start a sandbox; `key` is the replica's. None: nothing was started. Raises OSError."""
        if self.spawner is None:
            return None
        try:
            return self.spawner.spawn(self._network, argv, environment, files, user)
        except Gone:
            # It may have ended just before or just after the start.
            return next(iter(procfs.marked_processes().get(key, ())), None)


# In the spawner.


def _become_spawner(connection: socket.socket, user_namespace: int, lock: int) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        kept = [connection.fileno(), *([lock] if lock >= 0 else [])]
        # First of all: if the supervisor is killed now, its sockets must not stay open.
        namespaces.close_all_but([*kept, user_namespace])
        # The supervisor waits for it at each start, and it inherits nothing of the supervisor's priority.
        priority.raise_own()
        namespaces.become_spawner(user_namespace)
        namespaces.end_with_parent()  # the kernel forgets it when a process enters a user namespace
        os.close(user_namespace)
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            _serve(connection, home)
    except OSError as error:
        log_message(f"the process that starts sandboxes in networks: {error}")
    finally:
        os._exit(0)


def _serve(connection: socket.socket, home: int) -> None:
    while True:
        message, files = receive(connection, _MESSAGE_BYTES)
        if not message:
            return
        try:
            reply = _handle(json.loads(message), files, home)
        except OSError as error:
            reply = -(error.errno or 1)
        for fd in files:
            os.close(fd)
        connection.send(json.dumps([reply]).encode())


def _handle(request: Request, files: list[int], home: int) -> int:
    """Returns a process id, or the status of one that has ended. Raises OSError."""
    if "wait" in request:
        return os.waitpid(request["wait"], 0)[1]
    argv, pairs = request["argv"], zip(request["numbers"], files[1:], strict=True)
    actions = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
    actions += [(os.POSIX_SPAWN_DUP2, file, number) for number, file in pairs]
    namespaces.enter_network(files[0])
    try:
        with _limited(request), users.spawning_as(request["user"]):
            return os.posix_spawn(
                argv[0],
                argv,
                request["environment"],
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=RESET_SIGNALS,
            )
    finally:
        # It must not keep the gang's network alive.
        namespaces.enter_network(home)


@contextlib.contextmanager
def _limited(request: Request) -> Iterator[None]:
    own, cores = [(kind, getrlimit(kind)) for kind in _LIMITS], os.sched_getaffinity(0)
    try:
        for kind, limit in request["limits"]:
            setrlimit(kind, tuple(limit))
        if set(request["cores"]) != cores:
            os.sched_setaffinity(0, request["cores"])
        yield
    finally:
        for kind, limit in own:
            setrlimit(kind, limit)
        if set(request["cores"]) != cores:
            os.sched_setaffinity(0, cores)
