"""Takes a made environment away from the user that made it: nobody can change it any more."""

import os
import stat
from typing import NamedTuple


class Size(NamedTuple):
    files: int
    bytes: int


def protect(directory: str, builder: int | None) -> Size:
    """Makes everything below it read-only and, if another user built it, the service's own. Follows no link.

    No process of the builder may be left. Raises OSError for what a program of a package must have put there: a file of
    another user, or a device.
    """
    files = size = 0
    if os.path.islink(directory):
        raise PermissionError(f"{directory} is a link")
    _own(directory, None, builder)
    for _, directories, names, here in os.fwalk(directory, follow_symlinks=False):
        for name in (*names, *directories):
            status = os.stat(name, dir_fd=here, follow_symlinks=False)
            files, size = files + 1, size + status.st_blocks * 512
            if stat.S_IFMT(status.st_mode) not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
                raise PermissionError(f"{name} is neither a file nor a directory")
            if builder is not None and status.st_uid != builder:
                if status.st_uid == os.geteuid():
                    continue  # linked from the cache, where an earlier environment has it too
                raise PermissionError(f"{name} belongs to user {status.st_uid}, who did not make it")
            _own(name, here, builder)
            if not stat.S_ISLNK(status.st_mode):
                runs = stat.S_ISDIR(status.st_mode) or status.st_mode & 0o111
                os.chmod(name, 0o555 if runs else 0o444, dir_fd=here)
    return Size(files, size)


def _own(name: str, above: int | None, builder: int | None) -> None:
    if builder is not None:
        os.chown(name, os.geteuid(), os.getegid(), dir_fd=above, follow_symlinks=False)
