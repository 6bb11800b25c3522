"""Whether there is something at a source: asked before a job is created, and again before it starts."""

import os
import stat
from collections.abc import Iterator
from enum import StrEnum

from turnout.errors import NotFound

_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_DIRECTORIES = 1000
_DEEPEST = 100
"""A tree with more directories, or deeper ones, before its first file is not searched to its end: it counts as not
empty.
"""


class Presence(StrEnum):
    OBJECT = "object"
    """The source is one object."""
    DIRECTORY = "directory"
    """There is at least one object below the source."""
    EMPTY = "empty"
    NO_BUCKET = "no bucket"

    @property
    def exists(self) -> bool:
        return self in (Presence.OBJECT, Presence.DIRECTORY)

    def missing(self, source: str) -> NotFound:
        """The error about a source that a job reads."""
        if self is Presence.NO_BUCKET:
            return NotFound(f"{source!r} does not exist: there is no such bucket")
        return NotFound(f"there is nothing at {source!r}")


def find_presence(above: int, name: str) -> Presence:
    """What an entry of a directory is. `above`: a descriptor of the directory. Follows no link."""
    try:
        mode = os.stat(name, dir_fd=above, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return Presence.EMPTY
    if stat.S_ISREG(mode):
        return Presence.OBJECT
    if stat.S_ISDIR(mode) and _holds_file(above, name, iter(range(_MOST_DIRECTORIES)), _DEEPEST):
        return Presence.DIRECTORY
    return Presence.EMPTY


def _holds_file(above: int, name: str, visits: Iterator[int], levels: int) -> bool:
    """`visits`: one for each directory that may still be looked into. `levels`: how much deeper it may go."""
    if next(visits, None) is None or not levels:
        return True
    below: list[str] = []
    try:
        here = os.open(name, _READ, dir_fd=above)
    except OSError:  # removed or replaced meanwhile
        return False
    try:
        with os.scandir(here) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    return True
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.name)
        return any(_holds_file(here, one, visits, levels - 1) for one in below)
    finally:
        os.close(here)
