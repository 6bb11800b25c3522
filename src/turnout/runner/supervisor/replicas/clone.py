"""A process that is born in a cgroup, or that has something to do before it becomes the program: clone3.

Neither posix_spawn nor the standard library know of it.
"""

import ctypes
import errno
import os
import signal
import struct
from collections.abc import Callable

Files = dict[int, int]
"""The child's descriptors: its number there → the file here."""

# What the interpreter or the keeper ignore; every other signal has its default action in a child already.
RESET = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT)

_CLONE3 = 435
_CLONE_INTO_CGROUP, _CLONE_VFORK = 0x200000000, 0x4000
# Not CDLL: that would let go of the interpreter's lock, which the child could not take again.
_libc = ctypes.PyDLL(None, use_errno=True)


def clone_into(
    cgroup: int,
    program: str,
    argv: list[str],
    environment: dict[str, str],
    files: Files,
    first: Callable[[], None] | None = None,
) -> int:
    """As posix_spawn in a session of its own. Raises the OSError that the exec ended in, or `first` before it.

    `cgroup`: a descriptor, or -1 for the cgroup that we are in. `first` runs in the child.
    """
    trouble, tell = os.pipe2(os.O_CLOEXEC)
    try:
        flags = _CLONE_VFORK | (_CLONE_INTO_CGROUP if cgroup >= 0 else 0)
        arguments = struct.pack("<11Q", flags, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, max(cgroup, 0))
        pid: int = _libc.syscall(_CLONE3, arguments, ctypes.c_size_t(len(arguments)))
        if pid == 0:
            _become(program, argv, environment, files, tell, first)
        os.close(tell)
        tell = -1
        if pid < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        failed = os.read(trouble, 4096).decode(errors="replace")
    finally:
        os.close(trouble)
        if tell >= 0:
            os.close(tell)
    if failed:
        os.waitid(os.P_PID, pid, os.WEXITED)
        number, _, name = failed.partition(" ")
        raise OSError(int(number), os.strerror(int(number)), name or None)
    return pid


def _become(
    program: str,
    argv: list[str],
    environment: dict[str, str],
    files: Files,
    tell: int,
    first: Callable[[], None] | None,
) -> None:
    """In the child, until exec. It never returns."""
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        for number in (*RESET, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        if first:
            first()
        for number, file in files.items():
            os.dup2(file, number)
        os.execve(program, argv, environment)
    except OSError as error:
        os.write(tell, f"{error.errno} {error.filename or ''}"[:1000].encode(errors="replace"))
    except BaseException:  # noqa: BLE001 whatever it is, it must not look like a program that ran
        os.write(tell, str(errno.ENOMEM).encode())
    finally:
        os._exit(127)
