"""The users that jobs run as.

A supervisor that was started as root runs as a user that no job has, and starts the jobs of each project as a user of
that project. It keeps three capabilities for that: to change users, to change groups, and to kill processes. A
supervisor that an ordinary user started has none of them, and its jobs run as that user.

The user of a project is a number: its uid, and also the gid of its group. The first number of the range belongs to no
project: it is the group of all jobs.
"""

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterator

OWN = 0
"""The supervisor's own user, which jobs have where it was not started as root."""
SYS_ADMIN = 1 << 21

_CHOWN, _DAC_OVERRIDE, _FOWNER = 0, 1, 3
MOUNT_OVERLAY = SYS_ADMIN | 1 << _CHOWN | 1 << _DAC_OVERRIDE | 1 << _FOWNER
_KILL, _SETGID, _SETUID = 5, 6, 7
CHANGE_USER = 1 << _SETGID | 1 << _SETUID
SPAWN = CHANGE_USER | SYS_ADMIN
"""Capabilities that a process needs to enter networks and to start processes of other users in them."""
_KEPT_CAPABILITIES = 1 << _KILL | CHANGE_USER
_CAPBSET_READ, _CAPBSET_DROP, _KEEP_CAPABILITIES = 23, 24, 8
_CAPABILITIES_VERSION = 0x20080522
_MOST_CAPABILITIES = 64
_libc = ctypes.PyDLL(None, use_errno=True)  # PyDLL: see `clone`
_libc.setfsuid.argtypes = _libc.setfsgid.argtypes = [ctypes.c_uint32]

_uids = range(0)


def drop_root(uid: int, gid: int, uids: range) -> None:
    """Gives up root for good: becomes this user, with the right to become those in `uids`. Raises OSError."""
    global _uids
    for capability in range(_MOST_CAPABILITIES):
        if not _KEPT_CAPABILITIES >> capability & 1 and _libc.prctl(_CAPBSET_READ, capability, 0, 0, 0) == 1:
            _check(_libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0))
    _check(_libc.prctl(_KEEP_CAPABILITIES, 1, 0, 0, 0))
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    keep_capabilities(_KEPT_CAPABILITIES)
    _uids = uids


def uids() -> range:
    """The uids of jobs; empty if jobs run as the supervisor's own user."""
    return _uids


def hello_fields() -> dict[str, tuple[int, int]]:
    """The range of uids for the hello message: the first one, and the one after the last."""
    return {"uids": (_uids.start, _uids.stop)}


def require_allowed(user: int) -> int:
    """Returns `user` if jobs may run as this user. With a range of uids, the supervisor's own user is refused. Raises
    OSError.
    """
    if user not in _uids[1:] if _uids else user != OWN:
        why = (
            "an earlier version gave it the supervisor's own user"
            if user == OWN
            else f"no job has uid {user}"
        )
        raise OSError(errno.EPERM, why)
    return user


def become(user: int, capabilities: int = 0) -> None:
    """In a child: becomes the user for good. It keeps these capabilities until its exec. Raises OSError."""
    if user == OWN:
        return
    os.setgroups([_uids.start])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    keep_capabilities(capabilities)


def keep_capabilities(capabilities: int) -> None:
    """Drops all other capabilities. Raises OSError."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)(capabilities, capabilities, 0, 0, 0, 0)))


@contextlib.contextmanager
def spawning_as(user: int) -> Iterator[None]:
    """A process that is spawned inside belongs to this user from its first instruction. Raises OSError.

    Until its exec the child has the supervisor's capabilities. No process of that user can trace the child or the
    supervisor meanwhile, because a process that changed its user is not dumpable.
    """
    if user == OWN:
        yield
        return
    uid, gid = os.getuid(), os.getgid()
    try:
        os.setgroups([_uids.start])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        yield
    finally:
        os.setresuid(uid, uid, uid)
        os.setresgid(gid, gid, gid)
        os.setgroups([])


@contextlib.contextmanager
def acting_as(user: int) -> Iterator[None]:
    """Opens and creates files with this user's rights. The user cannot signal or trace the supervisor meanwhile,
    because the real and the saved uid count for that, and they do not change. Raises OSError.
    """
    if user == OWN:
        yield
        return
    with _group(user):
        os.setresuid(-1, user, -1)
        try:
            yield
        finally:
            os.setresuid(-1, os.getuid(), -1)


@contextlib.contextmanager
def with_group_of(user: int) -> Iterator[None]:
    """What is created inside belongs to the supervisor and to the user's group. Raises OSError."""
    if user == OWN:
        yield
        return
    with _group(user):
        yield


@contextlib.contextmanager
def with_file_access_of(user: int) -> Iterator[None]:
    """Opens files with this user's rights. The supervisor keeps its effective uid, and so its capabilities."""
    _libc.setfsgid(user)
    _libc.setfsuid(user)
    try:
        yield
    finally:
        _libc.setfsuid(os.getuid())
        _libc.setfsgid(os.getgid())


@contextlib.contextmanager
def _group(user: int) -> Iterator[None]:
    os.setresgid(-1, user, -1)
    try:
        yield
    finally:
        os.setresgid(-1, os.getgid(), -1)


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
