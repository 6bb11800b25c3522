"""Directories that jobs can write to, opened one name at a time without following links.

Each directory is opened relative to the one above it with O_NOFOLLOW, and `..` is never a name here. So a job that
swaps a directory for a link cannot lead the service out of the root.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from turnout.errors import Invalid
from turnout.storage.owners import Owner

MADE_FOR_OBJECT = "user.turnout.made"
"""The extended attribute of directories that were made to hold an object. They are removed when they are empty."""

_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Directory(NamedTuple):
    """A directory that a job gets as a bind mount.

    Open it from `root` down the `parts` without following links, as a job may swap a part for a link at any time.
    `path` is for messages only.
    """

    root: Path
    """Jobs can neither move it nor replace it."""
    parts: tuple[str, ...]
    read_only: bool

    @property
    def path(self) -> Path:
        return self.root.joinpath(*self.parts)


class MissingDirectory(Invalid):
    """One of the directories does not exist."""


class NotDirectory(Invalid):
    """One of the names is a file or a link."""


@contextlib.contextmanager
def open_beneath(
    root: Path, parts: tuple[str, ...], source: str, make: Owner | bool = False, mark: bool = False
) -> Iterator[int]:
    """Yields a descriptor (O_PATH) of the last directory.

    `make`: make missing directories for this owner, the first of them as a bucket. `mark`: give them the attribute
    MADE_FOR_OBJECT.
    """
    try:
        here = os.open(root, _STEP & ~os.O_NOFOLLOW)
    except OSError as error:
        raise _explained(error, source, str(root)) from None
    try:
        for number, part in enumerate(parts):
            owner = make if isinstance(make, bool) or number else make.of_bucket
            below = _step(here, part, source, owner, mark)
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
        os.mkdir(name, 0o750, dir_fd=here)
    except FileExistsError:
        mark = False
    if isinstance(owner, bool) and not mark:
        return
    made = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
    try:
        if mark:
            # A file system without extended attributes keeps the directory.
            with contextlib.suppress(OSError):
                os.setxattr(made, MADE_FOR_OBJECT, b"")
        if not isinstance(owner, bool) and os.fstat(made).st_uid == os.geteuid():
            owner.apply_to(made)
    finally:
        os.close(made)


def keep_directory(here: int) -> None:
    """Keeps it even when it is empty, because a job or a user asked for it by name."""
    with contextlib.suppress(OSError):
        os.removexattr(f"/proc/self/fd/{here}", MADE_FOR_OBJECT)


def _explained(error: OSError, source: str, name: str) -> Invalid:
    if error.errno == errno.ENOENT:
        return MissingDirectory(f"{source!r} does not exist: there is no {name!r}")
    if error.errno in (errno.ENOTDIR, errno.ELOOP):
        return NotDirectory(f"{source!r}: {name!r} is not a directory; links are not followed")
    return Invalid(f"{source!r}: {name!r} cannot be used: {error.strerror}")
