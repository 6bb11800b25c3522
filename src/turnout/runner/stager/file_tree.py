"""Outbound: lists and opens the regular files below a directory without following symbolic links."""

import os
import stat
from collections.abc import Callable, Iterator
from typing import NamedTuple

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LONGEST = 1024
"""Bytes of a key in an object store. What is below a directory with a longer path cannot be stored."""
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FoundFile(NamedTuple):
    path: str
    """Relative to the directory, with slashes."""
    size: int
    mtime: int


class Tree:
    def __init__(self, path: str, skip: str) -> None:
        """Names at the top level that begin with `skip` are ignored."""
        self.path = path
        self._root = os.open(path, _DIRECTORY)
        self._skip = skip

    def close(self) -> None:
        os.close(self._root)

    def files(self, warn: Callable[[str], None]) -> Iterator[FoundFile]:
        """Calls `warn` for everything that is neither a file nor a directory, or cannot be read."""
        return self._below(self._root, "", warn)

    def open(self, path: str) -> int:
        """Open a regular file for reading. Raises OSError if it is gone or no longer a regular file."""
        *parents, name = path.split("/")
        here = self._root
        try:
            for part in parents:
                below = os.open(part, _DIRECTORY, dir_fd=here)
                if here != self._root:
                    os.close(here)
                here = below
            fd = os.open(name, _FILE, dir_fd=here)
        finally:
            if here != self._root:
                os.close(here)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        raise FileNotFoundError(path)

    def _below(self, directory: int, prefix: str, warn: Callable[[str], None]) -> Iterator[FoundFile]:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in entries)
        for name in names:
            if not prefix and name.startswith(self._skip):
                continue
            path = prefix + name
            try:
                found = os.stat(name, dir_fd=directory, follow_symlinks=False)
                if stat.S_ISREG(found.st_mode):
                    yield FoundFile(path, found.st_size, found.st_mtime_ns)
                elif stat.S_ISDIR(found.st_mode) and len(os.fsencode(path)) > _LONGEST:
                    warn(
                        f"{path[:100]}… is skipped: an object cannot have a name of more than {_LONGEST} bytes"
                    )
                elif stat.S_ISDIR(found.st_mode):
                    below = os.open(name, _DIRECTORY, dir_fd=directory)
                    try:
                        yield from self._below(below, path + "/", warn)
                    finally:
                        os.close(below)
                else:
                    warn(
                        f"{path} is skipped: it is {_KINDS.get(stat.S_IFMT(found.st_mode), 'not a regular file')}"
                    )
            except FileNotFoundError:
                continue
            except OSError as error:
                warn(f"{path} is skipped: {error.strerror}")


_KINDS = {stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
