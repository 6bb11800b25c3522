"""Mounts of a sandboxed replica: opened without following links, and bound in a mount namespace of its own.

Other jobs may write where a source lies, and can replace it by a link between any check of its path and a later use.
Bubblewrap takes only paths, and cannot bind a descriptor that was opened in another mount namespace. So the supervisor
binds the sources by descriptor to a directory that no job can change, and gives bubblewrap those paths.
"""

import ctypes
import os
from collections.abc import Sequence

from . import users

Source = tuple[str, Sequence[str]]
"""A root that no job can change, and the names on the way down to the source."""

STAGE_MODE = 0o711
"""Mode of the stage where jobs have users of their own, because they mount there."""
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_MOUNTS, _NEW_USER = 0x20000, 0x10000000
_BIND, _RECURSIVE = 0x1000, 0x4000
_SET_DUMPABLE = 4
# PyDLL keeps the interpreter lock: a child that was just cloned could not take it again.
_libc = ctypes.PyDLL(None, use_errno=True)


def open_source(source: Source) -> int:
    """Returns a descriptor (O_PATH) of the directory. Raises OSError, also if there is a link on the way."""
    root, parts = source
    here = os.open(root, _STEP)
    for part in parts:
        try:
            below = os.open(part, _STEP | os.O_NOFOLLOW, dir_fd=here)
        finally:
            os.close(here)
        here = below
    return here


def make_mount_points(stage: str, count: int) -> None:
    """Makes the mount points `0`, `1`… below `stage`. Outside of the replica's mount namespace they stay empty."""
    made = 0
    while made < count:
        try:
            os.mkdir(f"{stage}/{made}", 0o700)
        except FileExistsError:
            pass
        except FileNotFoundError:
            os.mkdir(stage, STAGE_MODE if users.uids() else 0o700)
            continue
        made += 1


def bind_sources(sources: Sequence[Source], stage: str, in_user_namespace: bool = False) -> None:
    """In a child before its exec: enters a new mount namespace and binds the sources to the stage. Raises OSError.

    `in_user_namespace`: the child already has all rights in a user namespace; otherwise it enters a new one.
    """
    if in_user_namespace:
        _check(_libc.unshare(_NEW_MOUNTS))
    else:
        _unshare_all()
    # Opened only now, because a source can be bound only in the mount namespace in which it was opened.
    for number, source in enumerate(sources):
        fd = open_source(source)
        source_path, mount_point = f"/proc/self/fd/{fd}", f"{stage}/{number}"
        _check(_libc.mount(source_path.encode(), os.fsencode(mount_point), None, _BIND | _RECURSIVE, None))
        os.close(fd)


def _unshare_all() -> None:
    uid, gid = os.geteuid(), os.getegid()
    _check(_libc.unshare(_NEW_USER | _NEW_MOUNTS))
    # The files in /proc of a process that gave up root belong to root until it declares itself dumpable.
    _check(_libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        fd = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        os.write(fd, text.encode())
        os.close(fd)


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
