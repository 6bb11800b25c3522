"""How it is started: directory, attempts, lock, listener, uid (-1: stay who we are), gid, name, sandbox, open files,
kill at, what seals logs (a module, and where it is looked for), whether there is a key ring."""

import contextlib
import ctypes
import os
import resource
import signal
import socket

from . import ahead, cgroups
from .keep import Keeper
from .point import prepare
from .recovery import recover
from .sealing import Pumps

_PR_SET_CHILD_SUBREAPER = 36


def main(argv: list[str]) -> None:
    directory, attempts = argv[0], argv[1]
    lock, listener, uid, gid = (int(text) for text in argv[2:6])
    prepare(argv[9])
    # The lock came locked and lives as long as this process: no second keeper can begin before it is gone.
    for fd in (lock, listener):
        os.set_inheritable(fd, False)
    _close_all_but({0, 1, 2, lock, listener})
    _tell_who(lock)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.umask(0o022)
    pumps = Pumps(argv[10], argv[11].split(os.pathsep), now=argv[12] == "keys")
    slots = cgroups.find(argv[6], uid, gid)
    ahead.of_jobs()
    if uid >= 0:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    os.chdir("/")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    open_files = min(int(argv[8]), hard)
    keeper = Keeper(
        directory, attempts, socket.socket(fileno=listener), slots, open_files, argv[7] == "sandbox", pumps
    )
    recover(keeper)
    keeper.run()
    if slots:
        slots.close()


def _tell_who(lock: int) -> None:
    """Whoever has to wait for the lock can read whom it waits for."""
    with contextlib.suppress(OSError):
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d\n" % os.getpid(), 0)


def _close_all_but(known: set[int]) -> None:
    """Whatever else the service had inherited must not reach a user's program."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in known:
            with contextlib.suppress(OSError):
                os.close(int(name))
