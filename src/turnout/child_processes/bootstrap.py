"""The first steps of a child process: it ties its lifetime to the service and drops its privileges.

Two things end it when the service ends, even by a kill: a signal of the kernel, which also ends a child that is stopped
or does not read, and the end of its input, which works from its first instruction on.
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys
from collections.abc import Generator
from typing import NamedTuple, TypeVar, cast

import msgspec

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_C = ctypes.CDLL(None, use_errno=True)
_replies = 1


class Identity(NamedTuple):
    """The user and groups that a child runs as."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


class Setup(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The first line that a child reads. Each kind of child adds its own fields."""

    parent: int = 0
    """The process id of the service; 0: only the end of its input ends this process."""
    uid: int = -1
    """The user to switch to; -1: keep the current one."""
    gid: int = -1
    groups: list[int] = []
    memory: int = 0
    """The memory limit in bytes; 0: none."""


class Reply(msgspec.Struct):
    """The base of all replies."""

    id: int
    """The id of the request."""

    @property
    def last(self) -> bool:
        """Whether it completes the request; otherwise it reports progress."""
        return True


S = TypeVar("S", bound=Setup)


def read_setup(kind: type[S]) -> S:
    """Read the first line and tie this process to the service."""
    global _replies
    # Replies go to a copy of stdout, so that output of libraries cannot get between them.
    _replies = os.dup(1)
    os.dup2(2, 1)
    # It ends with the service, not by Ctrl-C in the terminal of the service.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    setup = msgspec.json.decode(_read_line() or b"{}", type=kind)
    _tie_to_service(setup)
    return setup


def drop_privileges(setup: Setup) -> None:
    """Switch to the user in `setup` and set limits. Python modules stay importable; other files may be unreadable."""
    if setup.uid >= 0:
        with _reachable_modules():
            os.setgroups(setup.groups)
            os.setresgid(setup.gid, setup.gid, setup.gid)
            os.setresuid(setup.uid, setup.uid, setup.uid)
        _C.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if setup.memory:
        resource.setrlimit(resource.RLIMIT_DATA, (setup.memory, setup.memory))
    # Jobs may run as the same user, and must not read memory that holds credentials.
    _C.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    os.umask(0o022)
    os.chdir("/")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # The kernel resets the death signal when a process changes its user.
    _tie_to_service(setup)


def reply(message: msgspec.Struct) -> None:
    """Blocks. If the service no longer reads, it has closed the input of this process too, which ends it."""
    data = msgspec.json.encode(message) + b"\n"
    with contextlib.suppress(BrokenPipeError):
        while data:
            data = data[os.write(_replies, data) :]


@contextlib.contextmanager
def _reachable_modules() -> Generator[None]:
    """Keeps modules importable that the new user cannot read, such as those of a Python below /root.

    Their directories are opened before the switch and replaced in sys.path by /proc/self/fd paths. This gives no access
    to their parent directories, whose permissions still apply.
    """
    opened = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in sys.path if os.path.isdir(path)}
    yield
    moved: dict[str, str] = {}
    for path, descriptor in opened.items():
        if os.access(path, os.R_OK | os.X_OK):
            os.close(descriptor)
        else:
            moved[path] = f"/proc/self/fd/{descriptor}"
    if not moved:
        return
    sys.path[:] = [_moved(path, moved) for path in sys.path]
    for module in list(sys.modules.values()):
        places = getattr(module, "__path__", None)
        if isinstance(places, list):
            places[:] = [_moved(str(place), moved) for place in cast("list[str]", places)]
    sys.path_importer_cache.clear()


def _moved(path: str, moved: dict[str, str]) -> str:
    for old in sorted(moved, key=len, reverse=True):
        if path == old or path.startswith(old + "/"):
            return moved[old] + path[len(old) :]
    return path


def _tie_to_service(setup: Setup) -> None:
    if not setup.parent:
        return
    _C.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != setup.parent:
        os._exit(0)  # the service has ended already


def _read_line() -> bytes:
    """Reads byte by byte, because other code reads the lines that follow."""
    line = b""
    while (byte := os.read(sys.stdin.fileno(), 1)) not in (b"\n", b""):
        line += byte
    return line
