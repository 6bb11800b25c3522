"""A process that is born in a cgroup: clone3, which neither posix_spawn nor the standard library know of."""

import ctypes
import os
import signal
import struct

Files = dict[int, int]
"""The child's descriptors: its number there → the file here."""

# What the interpreter or the keeper ignore; every other signal has its default action in a child already.
RESET = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT)

_CLONE3 = 435
_CLONE_INTO_CGROUP, _CLONE_VFORK = 0x200000000, 0x4000
# Not CDLL: that would let go of the interpreter's lock, which the child could not take again.
_libc = ctypes.PyDLL(None, use_errno=True)


def clone_into(cgroup: int, program: str, argv: list[str], environment: dict[str, str], files: Files) -> int:
    """As posix_spawn in a session of its own. Raises the OSError that the exec ended in."""
    trouble, tell = os.pipe2(os.O_CLOEXEC)
    try:
        flags = _CLONE_INTO_CGROUP | _CLONE_VFORK
        arguments = struct.pack("<11Q", flags, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, cgroup)
        pid: int = _libc.syscall(_CLONE3, arguments, ctypes.c_size_t(len(arguments)))
        if pid == 0:
            _become(program, argv, environment, files, tell)
        os.close(tell)
        tell = -1
        if pid < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        failed = os.read(trouble, 16)
    finally:
        os.close(trouble)
        if tell >= 0:
            os.close(tell)
    if failed:
        os.waitid(os.P_PID, pid, os.WEXITED)
        raise OSError(int(failed), os.strerror(int(failed)))
    return pid


def _become(program: str, argv: list[str], environment: dict[str, str], files: Files, tell: int) -> None:
    """In the child, until exec. It never returns."""
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        for number in (*RESET, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        for number, file in files.items():
            os.dup2(file, number)
        os.execve(program, argv, environment)
    except OSError as error:
        os.write(tell, str(error.errno).encode())
    finally:
        os._exit(127)
