"""Room on the disk of the cache."""

import errno
import os
from pathlib import Path

from turnout.errors import NotStored

_FULL = (errno.ENOSPC, errno.EDQUOT)


class DiskFull(NotStored):
    """What could not be stored may fit once other images are deleted."""

    def __init__(self, message: str, missing: int = 1) -> None:
        """`missing`: how many bytes at least."""
        super().__init__(message)
        self.missing = missing


def not_stored(what: str, error: OSError) -> NotStored:
    """`what` could not be stored."""
    message = f"{what}: {error.strerror}"
    return DiskFull(message) if error.errno in _FULL else NotStored(message)


def free(directory: Path) -> int:
    """Bytes that an ordinary user may still use. Blocks."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize
