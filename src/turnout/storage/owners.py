"""Owners of embedded buckets, if the service runs as root and the jobs of each project have a user of their own."""

import contextlib
import os
import stat
import struct
from collections.abc import Callable
from typing import NamedTuple

OPEN_PROJECT = "default"
"""The project of root and of callers without keys. Its buckets are open to all projects."""

FILE, DIRECTORY = 0o660, 0o2770
"""Modes of new files and directories. New entries of a directory get its group."""

_DEFAULT_ACL = "system.posix_acl_default"
_ANYTHING = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Owner(NamedTuple):
    """The owner of files in a bucket."""

    uid: int
    gid: int
    shared: bool = False
    """Every project may change the files of the others."""

    @property
    def of_bucket(self) -> "Owner":
        """The bucket itself belongs to the service, so that no job can change its permissions."""
        return self._replace(uid=os.geteuid())

    def apply_to(self, directory: int) -> None:
        """Gives a new directory to this owner. Raises OSError."""
        os.fchown(directory, self.uid, self.gid)
        os.fchmod(directory, DIRECTORY)
        if self.shared:
            share(directory)


class Owners(NamedTuple):
    ids_of: Callable[[str], tuple[int, int]]
    """The uid and gid of a project's jobs."""
    common: int
    """The group of all jobs."""
    earlier_uid: int
    """Earlier versions gave all buckets to this uid."""
    earlier_jobs_run: Callable[[], bool] = lambda: False
    """Whether jobs of an earlier version still run: they have that uid."""

    def of_bucket(self, project: str) -> Owner:
        uid, gid = self.ids_of(project)
        return Owner(uid, self.common, shared=True) if project == OPEN_PROJECT else Owner(uid, gid)


def share(directory: int) -> None:
    """Lets the directory's group change everything in it, whatever the umask of the process that creates a file."""
    entries = ((1, 7), (4, 7), (0x20, 0))  # the owner, the group, others
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry, 0xFFFFFFFF) for entry in entries)
    # On a file system without ACLs, other projects can replace a file, but not write to it.
    with contextlib.suppress(OSError):
        os.setxattr(directory, _DEFAULT_ACL, acl)


def hand_over(top: int, owner: Owner, earlier: int, keep: bool) -> None:
    """Gives to `owner` what `earlier` or its group owned below a directory. `keep`: changes only the group.

    Follows no links. Raises OSError if it cannot read a directory.
    """
    group = os.fstat(top).st_gid
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        parts = waiting.pop()
        here = _down(top, parts)
        try:
            for name in os.listdir(here):
                with contextlib.suppress(OSError):
                    if _hand_over_one(name, here, owner, (earlier, group), keep):
                        waiting.append((*parts, name))
        finally:
            os.close(here)


def _hand_over_one(name: str, above: int, owner: Owner, before: tuple[int, int], keep: bool) -> bool:
    """Returns whether the name is a directory."""
    found = os.open(name, _ANYTHING, dir_fd=above)
    try:
        status = os.fstat(found)
        kind, mode = stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)
        if status.st_uid != before[0] and status.st_gid != before[1]:
            return kind == stat.S_IFDIR
        uid = status.st_uid if keep else owner.uid
        if kind == stat.S_IFLNK:
            os.chown(name, uid, owner.gid, dir_fd=above, follow_symlinks=False)
            return False
        # A job cannot replace an open file by a link.
        path = f"/proc/self/fd/{found}"
        os.chown(path, uid, owner.gid)
        os.chmod(path, mode | (mode & stat.S_IRWXU) >> 3 | (stat.S_ISGID if kind == stat.S_IFDIR else 0))
        if kind == stat.S_IFDIR and owner.shared:
            directory = os.open(".", _LIST, dir_fd=found)
            try:
                share(directory)
            finally:
                os.close(directory)
        return kind == stat.S_IFDIR
    finally:
        os.close(found)


def _down(top: int, parts: tuple[str, ...]) -> int:
    """Opens a directory by its path from the top, because there may be more levels than open files are allowed."""
    here = os.dup(top)
    for part in parts:
        below = os.open(part, _STEP, dir_fd=here)
        os.close(here)
        here = below
    try:
        return os.open(".", _LIST, dir_fd=here)
    finally:
        os.close(here)
