"""A replica's mounts: opened without following links, and shown to its sandbox in a mount namespace of its own.

A source lies where other jobs may write, so between any check of its path and a later use of that path it can be
swapped for a link. Bubblewrap takes paths only, and cannot bind a descriptor that was opened in another mount
namespace. So it is given paths that no job can get at, and what is mounted there is bound by descriptor.
"""

import ctypes
import os
from collections.abc import Sequence

Source = tuple[str, Sequence[str]]
"""A root that no job can change, and the way down from there."""

_STEP = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_MOUNTS, _NEW_USER = 0x20000, 0x10000000
_BIND, _RECURSIVE = 0x1000, 0x4000
_SET_DUMPABLE = 4
# Not CDLL: a child that was just cloned could not take the interpreter's lock again.
_libc = ctypes.PyDLL(None, use_errno=True)


def open_source(source: Source) -> int:
    """A descriptor (O_PATH) of the directory. Raises OSError, also where there is a link on the way."""
    root, parts = source
    here = os.open(root, _STEP)
    for part in parts:
        try:
            below = os.open(part, _STEP | os.O_NOFOLLOW, dir_fd=here)
        finally:
            os.close(here)
        here = below
    return here


def furnish(stage: str, count: int) -> None:
    """The places `0`, `1`… below `stage`. They stay empty for everyone else."""
    made = 0
    while made < count:
        try:
            os.mkdir(f"{stage}/{made}", 0o700)
        except FileExistsError:
            pass
        except FileNotFoundError:
            os.mkdir(stage, 0o700)
            continue
        made += 1


def show(sources: Sequence[Source], stage: str) -> None:
    """In a child before its exec: enters namespaces of its own and mounts the sources on the stage. Raises OSError."""
    uid, gid = os.geteuid(), os.getegid()
    _check(_libc.unshare(_NEW_USER | _NEW_MOUNTS))
    # A keeper that has given up being root does not own its files in /proc until it says that it has no secrets.
    _check(_libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        fd = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        os.write(fd, text.encode())
        os.close(fd)
    # Opened only now: what is to be bound must have been reached in this mount namespace.
    for number, source in enumerate(sources):
        fd = open_source(source)
        here, there = f"/proc/self/fd/{fd}", f"{stage}/{number}"
        _check(_libc.mount(here.encode(), os.fsencode(there), None, _BIND | _RECURSIVE, None))
        os.close(fd)


def _check(answer: int) -> None:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
