"""Down a path, one name at a time and never through a link.

Each directory is opened relative to the one before with O_NOFOLLOW. As `..` is never a name here, nothing that is
swapped for a link meanwhile can lead out.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from turnout.errors import Invalid

Owner = tuple[int, int]

MADE = "user.turnout.made"
"""On directories that came to be because an object was put below them: they go when nothing is left in them."""

_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Missing(Invalid):
    """A directory on the way is not there."""


class Blocked(Invalid):
    """What lies on the way is a file or a link."""


@contextlib.contextmanager
def walk(
    root: Path, parts: tuple[str, ...], source: str, make: Owner | bool = False, mark: bool = False
) -> Iterator[int]:
    """A descriptor (O_PATH) of the directory at the end.

    `make`: those that are missing are made, for this owner; `mark`: they are marked as MADE.
    """
    try:
        here = os.open(root, _STEP & ~os.O_NOFOLLOW)
    except OSError as error:
        raise _explained(error, source, str(root)) from None
    try:
        for part in parts:
            below = _step(here, part, source, make, mark)
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def _step(here: int, name: str, source: str, make: Owner | bool, mark: bool) -> int:
    try:
        try:
            return os.open(name, _STEP, dir_fd=here)
        except FileNotFoundError:
            if make is False:
                raise
            make_directory(here, name, make, mark)
            return os.open(name, _STEP, dir_fd=here)
    except OSError as error:
        raise _explained(error, source, name) from None


def make_directory(here: int, name: str, owner: Owner | bool, mark: bool) -> None:
    """Makes it if it is missing."""
    try:
        os.mkdir(name, 0o755, dir_fd=here)
    except FileExistsError:
        mark = False
    if isinstance(owner, bool) and not mark:
        return
    made = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
    try:
        if mark:
            with contextlib.suppress(OSError):  # a file system without such attributes: it just stays
                os.setxattr(made, MADE, b"")
        if not isinstance(owner, bool) and os.fstat(made).st_uid == os.geteuid():
            os.fchown(made, *owner)
    finally:
        os.close(made)


def keep_directory(here: int) -> None:
    """It stays even if nothing is left in it, as a job or a user asked for it by name."""
    with contextlib.suppress(OSError):
        os.removexattr(f"/proc/self/fd/{here}", MADE)


def _explained(error: OSError, source: str, name: str) -> Invalid:
    if error.errno == errno.ENOENT:
        return Missing(f"{source!r} does not exist: there is no {name!r}")
    if error.errno in (errno.ENOTDIR, errno.ELOOP):
        return Blocked(f"{source!r}: {name!r} is not a directory, or is a link, which is not followed")
    return Invalid(f"{source!r}: {name!r} cannot be used: {error.strerror}")
