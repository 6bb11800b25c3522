"""The process that starts a sandbox in an image: a copy of the supervisor, made before it is needed if possible.

The overlay of an image needs a mount namespace that the sandbox inherits, and so a copy of the supervisor that enters
one. The copy takes milliseconds. So one waits for the next start, made while the supervisor has nothing else to do. It
prepares the root directory, starts the sandbox and ends: then the sandbox is the supervisor's own child, because the
supervisor is its subreaper. Until then it holds the supervisor's lock, like `network.spawner`.
"""

import contextlib
import errno
import json
import os
import signal
import socket
from collections.abc import Callable
from typing import Any, NoReturn

from .. import priority, procfs
from ..descriptors import receive
from ..diagnostics import log_message
from ..loop import Loop
from ..network import namespaces
from . import limits, roots, users
from .clone import RESET_SIGNALS, Files, fork_into
from .mounts import bind_sources
from .spares import QUIET

_MESSAGE_BYTES = 1 << 12

Request = dict[str, Any]


class Gone(Exception):
    """The process has ended and has not said whether it started the sandbox."""


class SpareProcess:
    def __init__(self, lock: int, cgroup: int = -1) -> None:
        """`lock` is the supervisor's lock, or -1. `cgroup`: see `clone_into`. Raises OSError."""
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = fork_into(cgroup)
        if self.pid == 0:
            _wait_and_start(theirs, lock)
        theirs.close()

    def start(self, request: int, files: list[int]) -> int:
        """Returns the id of the sandbox's process. Raises Gone, or the OSError of what failed."""
        try:
            socket.send_fds(self._connection, [b"start"], [request, *files])
            reply = self._connection.recv(_MESSAGE_BYTES)
        except OSError:
            reply = b""
        if not reply:
            raise Gone
        pid, number, name = json.loads(reply)
        if number:
            raise OSError(number, os.strerror(number), name or None)
        return pid

    def close(self) -> None:
        self._connection.close()


class SpareProcesses:
    """Keeps one process ready once there was a start in an image. `watch_helper`: see `ReplicaProcesses`."""

    def __init__(self, lock: int, loop: Loop, watch_helper: Callable[[int], None]) -> None:
        self._loop = loop
        self._lock = lock
        self._watch_helper = watch_helper
        self._wanted = False
        self._quiet_from = 0.0
        self._spare: SpareProcess | None = None

    def prepare(self) -> bool:
        """Makes the process if it is missing. Called when the supervisor is idle."""
        if self._wanted and self._spare is None and self._loop.clock() >= self._quiet_from:
            self._spare = self._make()
        return False

    def start(
        self, request: Request, files: Files, namespaces: tuple[int, ...], cgroup: int | None, key: str
    ) -> int:
        """Starts a sandbox with the limits that the supervisor has now; `key` is the replica's. Raises OSError.

        `namespaces`: of its users and its network, or none. `cgroup`: see `clone_into`; None: the
        replica has none. No spare process is in a cgroup.
        """
        self._wanted, self._quiet_from = True, self._loop.clock() + QUIET
        self._loop.wake_after(QUIET)
        request |= {"numbers": list(files), "limits": limits.inherited()}
        memory = os.memfd_create("turnout")
        try:
            os.write(memory, json.dumps(request).encode())
            passed = [*files.values(), *namespaces]
            while True:
                spare = None
                if cgroup is None:
                    spare, self._spare = self._spare, None
                process = spare or self._make(-1 if cgroup is None else cgroup)
                try:
                    return process.start(memory, passed)
                except Gone:
                    # It may have ended just before or just after the start.
                    if pid := next(iter(procfs.marked_processes().get(key, ())), None):
                        return pid
                    if spare is None:
                        raise OSError(errno.ECHILD, "the process that starts it has ended") from None
                finally:
                    process.close()
        finally:
            os.close(memory)

    def close(self) -> None:
        if self._spare:
            self._spare.close()

    def _make(self, cgroup: int = -1) -> SpareProcess:
        made = SpareProcess(self._lock, cgroup)
        self._watch_helper(made.pid)
        return made


# In the process.


def _wait_and_start(connection: socket.socket, lock: int) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # First of all: if the supervisor is killed now, its sockets must not stay open.
        namespaces.close_all_but([connection.fileno(), *([lock] if lock >= 0 else [])])
        priority.raise_own()
        message, files = receive(connection, _MESSAGE_BYTES)
        if message:
            reply = _try(files)
            with contextlib.suppress(OSError):
                connection.send(json.dumps(reply).encode())
    except OSError as error:
        log_message(f"the process that starts a sandbox in an image: {error}")
    finally:
        os._exit(0)


def _try(files: list[int]) -> tuple[int, int, str]:
    """Process id, number of an error, and the file that it is about."""
    try:
        size = os.fstat(files[0]).st_size
        return _start(json.loads(os.pread(files[0], size, 0)), files[1:]), 0, ""
    except OSError as error:
        return 0, error.errno or 1, str(error.filename or "")[:1000]


def _start(request: Request, files: list[int]) -> int:
    """The kernel writes to the overlay's directories with the rights of the one who mounts it."""
    numbers: list[int] = request["numbers"]
    passed = dict(zip(numbers, files, strict=False))
    in_network = files[len(numbers) :]
    if in_network:
        namespaces.enter(*in_network)
    users.become(request["user"], users.MOUNT_OVERLAY if in_network else 0)
    bind_sources(request["mounts"], request["stage"], in_user_namespace=bool(in_network))
    roots.mount(request["layers"], request["directory"], request["start"], request["stage"])
    placed = roots.place(request["options"], roots.staged(request["stage"]))
    arguments = passed[request["arguments"]]
    os.ftruncate(arguments, 0)
    os.pwrite(arguments, ("\0".join(placed) + "\0").encode(), 0)
    argv: list[str] = request["argv"]
    limits.set_inherited(request["limits"])
    actions = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
    actions += [(os.POSIX_SPAWN_DUP2, file, number) for number, file in passed.items()]
    return os.posix_spawn(
        argv[0],
        argv,
        request["environment"],
        file_actions=actions,
        setsid=True,
        setsigmask=(),
        setsigdef=RESET_SIGNALS,
    )
