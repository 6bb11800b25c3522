"""Starts the supervisor's process."""

import contextlib
import fcntl
import logging
import os
import signal
import socket
import stat
import sys
import time
import zlib
from pathlib import Path

from turnout import chaos
from turnout.engines import Unreachable
from turnout.engines.local.supervisor.connection import connect, socket_path
from turnout.engines.local.users.account import Account, Accounts
from turnout.paths import Paths

_log = logging.getLogger(__name__)

_RUNNER = Path(__file__).parents[3] / "runner"
_SOURCES = Path(__file__).parents[4]
_LOG_ENCRYPTER = "turnout.vault.log_encrypter"
_MAIN = (
    "import sys; sys.path.insert(0, sys.argv[1]); from supervisor.__main__ import main; main(sys.argv[2:])"
)
_MARKER = "TURNOUT_KEEPER"
"""The only variable in the supervisor's environment. The processes that it starts have other environments."""
_LOCK_POLL_SECONDS = 0.02
_EXIT_SECONDS = 1.0
"""A supervisor that is about to end has ended by then."""
_STREAMS = 3
_RESET = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SupervisorProcess:
    def __init__(self, paths: Paths, accounts: Accounts, sandbox: bool, open_files: int, keys: bool) -> None:
        """`keys`: whether there are encryption keys, so that logs may have to be encrypted."""
        self._paths = paths
        self._accounts = accounts
        self._sandbox = sandbox
        self._open_files = open_files
        self._keys = keys
        self._child = 0
        self.cancelled = False
        """Set it to make a `start` that waits raise Unreachable."""

    def start(self) -> socket.socket:
        """Blocks while another supervisor holds the lock. Returns a connection. Raises Unreachable.

        The lock and the listening socket are made here and inherited by the supervisor. So clients can connect as soon
        as the lock is held.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        lock = _above_streams(os.open(self._paths.supervisor / "lock", flags, 0o600))
        try:
            self._wait_for_lock(lock)
            fresh = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            with socket.socket(fileno=_above_streams(fresh.detach())) as listener:
                with socket_path(self._paths.supervisor) as path:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(path)
                    listener.bind(path)
                    _make_private(path)
                listener.listen()
                self._spawn(lock, listener.fileno())
            connection = connect(self._paths.supervisor)
        finally:
            os.close(lock)
        if connection is None:
            raise Unreachable(f"the supervisor did not start; see {self._paths.supervisor / 'log'}")
        return connection

    def _wait_for_lock(self, lock: int) -> None:
        """The supervisor that holds it is about to end, or cannot be reached because its socket was removed."""
        began, warned = time.monotonic(), False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                pass
            if self.cancelled:
                raise Unreachable("the service is stopping")
            if not warned and time.monotonic() - began > _EXIT_SECONDS:
                warned = True
                _log.warning(
                    "waiting for the running supervisor (process %s) to end: it holds %s but does not listen at %s, "
                    "and no second one may start before the jobs that it runs have ended",
                    os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown",
                    self._paths.supervisor / "lock",
                    self._paths.supervisor / "socket",
                )
            time.sleep(_LOCK_POLL_SECONDS)

    def _spawn(self, lock: int, listener: int) -> None:
        first = not self._child
        if not first:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._child, 0)
        log = str(self._paths.supervisor / "log")
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            # A dup2 of a descriptor to itself makes this child, and no other, inherit it.
            (os.POSIX_SPAWN_DUP2, lock, lock),
            (os.POSIX_SPAWN_DUP2, listener, listener),
        ]
        self._child = os.posix_spawn(
            sys.executable,
            self._command(lock, listener, first),
            {_MARKER: str(self._paths.supervisor)},
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=_RESET,
        )

    def _command(self, lock: int, listener: int, first: bool) -> list[str]:
        account, uids = self._accounts.supervisor, self._accounts.uids
        uid, gid = (account.uid, account.gid) if account.other else (-1, -1)
        # Only the first one is killed: the next ones show that nothing was lost.
        kill_at = chaos.kill_at if first and chaos.kill_at.startswith("supervisor.") else ""
        return [
            *(sys.executable, "-I", "-S", "-c", _MAIN),
            *(str(_RUNNER), str(self._paths.supervisor), str(self._paths.attempts)),
            str(lock),
            str(listener),
            str(uid),
            str(gid),
            f"{zlib.crc32(os.fsencode(self._paths.data)):08x}",
            "sandbox" if self._sandbox else "none",
            str(self._open_files),
            kill_at,
            _LOG_ENCRYPTER,
            os.pathsep.join([str(_SOURCES), *filter(None, sys.path)]),
            "keys" if self._keys else "none",
            str(uids.start),
            str(len(uids)),
        ]


def kill(pid: int, account: Account) -> bool:
    """Kills a supervisor, so that the next one takes over what it runs. Returns whether it did.

    Only a process of the supervisor's own user is killed: a job of an earlier version could pose as the supervisor.
    """
    if not account.other:
        return False
    with contextlib.suppress(OSError, IndexError):
        pidfd = os.pidfd_open(pid)
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            users = next(line for line in lines if line.startswith("Uid:")).split()[1:]
            if set(users) == {str(account.uid)}:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                return True
        finally:
            os.close(pidfd)
    return False


def _make_private(path: str) -> None:
    """Changes the mode of the socket that was just bound, and of nothing that was put in its place."""
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            os.chmod(f"/proc/self/fd/{fd}", 0o600)
    finally:
        os.close(fd)


def _above_streams(fd: int) -> int:
    """The same file under a number above those of the standard streams."""
    if fd >= _STREAMS:
        return fd
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _STREAMS)
    os.close(fd)
    return moved
