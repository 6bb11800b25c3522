"""Starts a process with clone3: directly in a cgroup, or with code that runs in the child before its exec.

Neither posix_spawn nor the standard library can do that.
"""

import ctypes
import errno
import os
import signal
import struct
from collections.abc import Callable

Files = dict[int, int]
"""The child's descriptors: the number there, and the file here."""

BeforeExec = Callable[[], None]

# Signals that the interpreter or the supervisor ignores. All others have their default action in a child.
RESET_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT)

_CLONE3 = 435
_CLONE_INTO_CGROUP, _CLONE_VFORK = 0x200000000, 0x4000
# PyDLL keeps the interpreter lock: the child could not take it again.
_libc = ctypes.PyDLL(None, use_errno=True)


def clone_into(
    cgroup: int,
    program: str,
    argv: list[str],
    environment: dict[str, str],
    files: Files,
    before_exec: BeforeExec | None = None,
) -> int:
    """Like posix_spawn, in a new session. Raises the OSError of the exec or of `before_exec`.

    `cgroup` is a descriptor, or -1 for the supervisor's own. `before_exec` runs in the child. A
    script without an interpreter line is run by /bin/sh, as execvp does.
    """
    error_read, error_write = os.pipe2(os.O_CLOEXEC)
    try:
        flags = _CLONE_VFORK | (_CLONE_INTO_CGROUP if cgroup >= 0 else 0)
        arguments = struct.pack("<11Q", flags, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, max(cgroup, 0))
        pid: int = _libc.syscall(_CLONE3, arguments, ctypes.c_size_t(len(arguments)))
        if pid == 0:
            _exec(program, argv, environment, files, error_write, before_exec)
        os.close(error_write)
        error_write = -1
        if pid < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        failed = os.read(error_read, 4096).decode(errors="replace")
    finally:
        os.close(error_read)
        if error_write >= 0:
            os.close(error_write)
    if failed:
        os.waitid(os.P_PID, pid, os.WEXITED)
        number, _, name = failed.partition(" ")
        raise OSError(int(number), os.strerror(int(number)), name or None)
    return pid


def _exec(
    program: str,
    argv: list[str],
    environment: dict[str, str],
    files: Files,
    error_write: int,
    before_exec: BeforeExec | None,
) -> None:
    """In the child, until its exec. It never returns."""
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        for number in (*RESET_SIGNALS, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        if before_exec:
            before_exec()
        for number, file in files.items():
            os.dup2(file, number)
        try:
            os.execve(program, argv, environment)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            os.execve("/bin/sh", ["/bin/sh", program, *argv[1:]], environment)
    except OSError as error:
        os.write(error_write, f"{error.errno} {error.filename or ''}"[:1000].encode(errors="replace"))
    except BaseException:  # noqa: BLE001 any failure must not look like a program that ran
        os.write(error_write, str(errno.ENOMEM).encode())
    finally:
        os._exit(127)
