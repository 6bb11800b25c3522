"""Writes incoming files below a directory without following symbolic links.

A job that ran there before may have left a link, a pipe or anything else in any place.
"""

import contextlib
import errno
import itertools
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from turnout.errors import Invalid, TurnoutError
from turnout.runner.stager.write_size import write_all

if TYPE_CHECKING:
    from typing_extensions import Buffer

INCOMING = ".turnout-incoming-"
"""Prefix of the directory that holds files until they are complete."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LONGEST_NAME = 255


class NoSpace(TurnoutError): ...


class Stat(NamedTuple):
    size: int
    mtime: int


def parts_of(key: str, url: str) -> tuple[str, ...]:
    """The path components of a key below a prefix. Raises Invalid for a key that could lead outside the directory."""
    parts = tuple(key.split("/"))
    for part in parts:
        if part in ("", ".", "..") or "\0" in part:
            raise Invalid(f"{url}: the key {key!r} cannot be a file name: it has the component {part!r}")
        if len(part.encode(errors="surrogatepass")) > _LONGEST_NAME:
            raise Invalid(
                f"{url}: the key {key!r} cannot be a file name: a component has more than {_LONGEST_NAME} bytes"
            )
    if parts[0].startswith(INCOMING):
        raise Invalid(
            f"{url}: the key {key!r} cannot be a file name: Turnout uses names that begin with {INCOMING}"
        )
    return parts


class TargetDirectory:
    """A directory for incoming files. Each file gets its name only when it is complete."""

    def __init__(self, path: str, tag: str) -> None:
        """`tag` distinguishes several targets in the same directory."""
        self.path = path
        self._root = os.open(path, _DIRECTORY)
        self._incoming_name = INCOMING + tag
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._incoming_name, 0o700, dir_fd=self._root)
        self._incoming = os.open(self._incoming_name, _DIRECTORY, dir_fd=self._root)
        self._numbers = itertools.count()
        self._users = 0
        self._change = threading.Condition()
        self._closed = False

    @contextlib.contextmanager
    def used(self) -> Iterator[bool]:
        """Yields whether the target is open, and keeps it open within the context; for abandoned threads."""
        with self._change:
            used = not self._closed
            self._users += used
        try:
            yield used
        finally:
            with self._change:
                self._users -= used
                self._change.notify_all()

    def close(self, keep: bool) -> None:
        """`keep`: keep incomplete files, to resume them later."""
        with self._change:
            self._closed = True
            self._change.wait_for(lambda: not self._users)
        if not keep:
            for name in os.listdir(self._incoming):
                os.unlink(name, dir_fd=self._incoming)
        with contextlib.suppress(OSError):
            os.rmdir(self._incoming_name, dir_fd=self._root)
        os.close(self._incoming)
        os.close(self._root)

    def drop_leftovers(self) -> None:
        """Delete small files that a killed stager left incomplete."""
        for name in os.listdir(self._incoming):
            if name.startswith("small-"):
                os.unlink(name, dir_fd=self._incoming)

    def stat(self, parts: tuple[str, ...]) -> Stat | None:
        """The size and time of a regular file; None: there is none."""
        try:
            with self._parent(parts) as parent:
                found = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False)
        except OSError:
            return None
        return Stat(found.st_size, found.st_mtime_ns) if found.st_mode & 0o170000 == 0o100000 else None

    def is_directory(self, parts: tuple[str, ...]) -> bool:
        with contextlib.suppress(OSError), self._parent((*parts, "")):
            return True
        return False

    def make_directory(self, parts: tuple[str, ...]) -> None:
        with self._explained(parts), self._parent((*parts, ""), make=True):
            pass

    def write(self, parts: tuple[str, ...], data: "Buffer", mtime: int) -> None:
        """Writes a small file at once."""
        name = f"small-{next(self._numbers)}"
        size = len(memoryview(data))
        with self._explained(parts, size):
            fd = self.create(name)
            try:
                write_all(fd, data, 0)
                os.utime(fd, ns=(mtime, mtime))
                self.place(name, parts)
            except BaseException:
                self.remove(name)
                raise
            finally:
                os.close(fd)

    def create(self, name: str) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, 0o644, dir_fd=self._incoming)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._incoming)

    def place(self, name: str, parts: tuple[str, ...]) -> None:
        """Move a complete file to its final path."""
        with self._explained(parts), self._parent(parts, make=True) as parent:
            os.rename(name, parts[-1], src_dir_fd=self._incoming, dst_dir_fd=parent)

    @contextlib.contextmanager
    def _parent(self, parts: tuple[str, ...], make: bool = False) -> Iterator[int]:
        here = self._root
        try:
            for part in parts[:-1]:
                below = self._step(here, part, make)
                if here != self._root:
                    os.close(here)
                here = below
            yield here
        finally:
            if here != self._root:
                os.close(here)

    @staticmethod
    def _step(here: int, name: str, make: bool) -> int:
        try:
            return os.open(name, _STEP, dir_fd=here)
        except FileNotFoundError:
            if not make:
                raise
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=here)
        return os.open(name, _STEP, dir_fd=here)

    @contextlib.contextmanager
    def _explained(self, parts: tuple[str, ...], size: int = 0) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self.explain(error, parts, size) from None

    def explain(self, error: OSError, parts: tuple[str, ...], size: int) -> TurnoutError:
        path = "/".join(parts)
        where = os.path.join(self.path, path)
        if error.errno in _FULL:
            free = os.statvfs(self._root)
            return NoSpace(
                f"no space is left for {where}: it needs {_megabytes(size)},"
                f" and {_megabytes(free.f_bavail * free.f_frsize)} are free"
            )
        if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EEXIST, errno.ENOTEMPTY):
            return Invalid(
                f"{where} cannot be created: {path!r} or a parent is both a file and a directory, or a symbolic link"
            )
        return Invalid(f"{where} cannot be written: {error.strerror}")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
