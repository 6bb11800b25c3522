"""Entry point. Arguments: directory, attempts, lock, listener, uid (-1: keep the own user), gid, name, sandbox, open
files, kill point, module of the log encrypter, its search path, whether there is a key ring, and, as root only, the
first uid of jobs and how many there are.
"""

import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import socket

from . import priority
from .chaos import set_kill_point
from .diagnostics import log_message
from .logs.sealed_log import LogEncrypters
from .recovery.recover import recover
from .replicas import cgroups, users
from .supervisor import Supervisor

_PR_SET_CHILD_SUBREAPER = 36


def main(argv: list[str]) -> None:
    directory, attempts = argv[0], argv[1]
    lock, listener, uid, gid = (int(text) for text in argv[2:6])
    set_kill_point(argv[9])
    # The lock is already held, and for as long as this process lives. So no second supervisor can start before it is
    # gone.
    for fd in (lock, listener):
        os.set_inheritable(fd, False)
    _close_all_but({0, 1, 2, lock, listener})
    _write_pid(lock)
    _lock_directory(directory)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.umask(0o022)
    encrypters = LogEncrypters(argv[10], argv[11].split(os.pathsep), now=argv[12] == "keys")
    slots = cgroups.set_up(argv[6], uid, gid)
    priority.raise_own()
    if uid >= 0:
        first, count = int(argv[13]), int(argv[14])
        users.drop_root(uid, gid, range(first, first + count))
    os.chdir("/")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    open_files = min(int(argv[8]), hard)
    supervisor = Supervisor(
        directory,
        attempts,
        socket.socket(fileno=listener),
        slots,
        open_files,
        argv[7] == "sandbox",
        encrypters,
        lock,
    )
    recover(supervisor)
    supervisor.run()
    if slots:
        slots.close()


def _lock_directory(directory: str) -> None:
    """Locks the directory as well as the lock file. If somebody removes that file, the next supervisor could lock a new
    one.
    """
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log_message(
            f"another supervisor holds {directory}, though its lock or its socket was removed: this one ends"
        )
        os._exit(1)
    except OSError as error:  # NFS cannot lock a directory
        log_message(f"{directory} itself cannot be locked, only the file in it: {error}")


def _write_pid(lock: int) -> None:
    """Writes the process id into the lock file, for whoever waits for the lock."""
    with contextlib.suppress(OSError):
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d\n" % os.getpid(), 0)


def _close_all_but(known: set[int]) -> None:
    """A file that the service had inherited must not reach a user's program."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in known:
            with contextlib.suppress(OSError):
                os.close(int(name))
