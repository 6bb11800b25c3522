"""Applies a layer to an empty directory, in the form that overlayfs reads.

A layer is not trusted. Names are resolved one part after the other below the directory's descriptor, and no link
is followed, so nothing outside of the directory can be reached. Devices and pipes are left out, owners, attributes
and the setuid, setgid and sticky bits are ignored.
"""

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from typing import NamedTuple

from turnout.images.tar import BadLayer, Entry, Stream, TarReader

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_WHITEOUT = b".wh."
_OPAQUE = b".wh..wh..opq"
_OF_AUFS = b".wh..wh."
_DEEPEST = 200
_MOST_SKIPPED = 20
_PAGE = 4096


class LayerLimits(NamedTuple):
    bytes: int
    files: int


class Applied(NamedTuple):
    bytes: int
    """The space that the files need."""
    files: int
    skipped: list[str]
    """What was left out and why, at most 20 lines."""
    opaque: bool
    """Whether it hides all layers below it."""


def apply(stream: Stream, root: int, limits: LayerLimits) -> Applied:
    """`root`: the descriptor of an empty directory. Raises BadLayer, and OSError where the disk is at fault."""
    writer = _LayerWriter(root, limits)
    reader = TarReader(stream)
    for entry in reader.entries():
        writer.add(entry, reader.content())
    writer.finish()
    return Applied(writer.bytes, writer.files, writer.skipped, writer.opaque)


class _LayerWriter:
    def __init__(self, root: int, limits: LayerLimits) -> None:
        self._root = root
        self._limits = limits
        self._parent: tuple[bytes, ...] = ()
        self._parent_fd = os.dup(root)
        """The directory of the last entry: the next one is mostly in the same."""
        self._times: dict[tuple[bytes, ...], int] = {}
        """Of directories. They change with each file in them, so they are set at the end."""
        self.bytes = 0
        self.files = 0
        self.skipped: list[str] = []
        self.opaque = False

    def add(self, entry: Entry, content: Iterator[bytes]) -> None:
        parts = _parts(entry.name, "an entry")
        self._count(entry)
        if not parts:
            if entry.kind == "directory":
                os.fchmod(self._root, self._mode(entry))
                self._times[()] = entry.mtime
            return
        try:
            self._add(entry, parts, content)
        except OSError as error:
            raise _explained(error, entry) from None

    def finish(self) -> None:
        for parts, mtime in sorted(self._times.items(), reverse=True):
            with (
                contextlib.suppress(FileNotFoundError, NotADirectoryError, BadLayer),
                self._opened(parts) as directory,
            ):
                os.utime(directory, ns=(mtime, mtime))
        os.close(self._parent_fd)

    def _add(self, entry: Entry, parts: tuple[bytes, ...], content: Iterator[bytes]) -> None:
        *above, name = parts
        parent = self._enter(tuple(above))
        if name.startswith(_WHITEOUT):
            return self._whiteout(parent, name, not above)
        if entry.kind == "directory":
            self._make_directory(parent, name, entry)
            self._times[parts] = entry.mtime
        elif entry.kind == "file":
            self._make_way(parent, name)
            self._write(parent, name, entry, content)
        elif entry.kind == "link":
            self._make_way(parent, name)
            os.symlink(entry.target, name, dir_fd=parent)
            os.utime(name, ns=(entry.mtime, entry.mtime), dir_fd=parent, follow_symlinks=False)
        elif entry.kind == "hard link":
            self._link(parent, name, entry)
        elif len(self.skipped) < _MOST_SKIPPED:
            self.skipped.append(
                f"{_shown(entry.name)}: a {entry.kind}; only files, directories and links are taken over"
            )
        return None

    def _enter(self, parts: tuple[bytes, ...]) -> int:
        """The descriptor of this directory, which is made if no entry did."""
        if parts != self._parent:
            fd = os.dup(self._root)
            try:
                for part in parts:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, 0o755, dir_fd=fd)
                    below = os.open(part, _DIRECTORY, dir_fd=fd)
                    os.close(fd)
                    fd = below
            except OSError as error:
                os.close(fd)
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise BadLayer(
                        f"the layer writes below {_shown(b'/'.join(parts))}, which is a link or a file"
                    ) from None
                raise
            os.close(self._parent_fd)
            self._parent, self._parent_fd = parts, fd
        return self._parent_fd

    @contextlib.contextmanager
    def _opened(self, parts: tuple[bytes, ...]) -> Iterator[int]:
        """An existing directory."""
        fd = os.dup(self._root)
        try:
            for part in parts:
                below = os.open(part, _DIRECTORY, dir_fd=fd)
                os.close(fd)
                fd = below
            yield fd
        finally:
            os.close(fd)

    def _make_directory(self, parent: int, name: bytes, entry: Entry) -> None:
        found = _look(parent, name)
        hides = found is not None and _is_whiteout(found)
        if found is not None and not stat.S_ISDIR(found.st_mode):
            os.unlink(name, dir_fd=parent)
            found = None
        if found is None:
            os.mkdir(name, 0o700, dir_fd=parent)
        fd = os.open(name, _DIRECTORY, dir_fd=parent)
        try:
            os.fchmod(fd, self._mode(entry))
            if hides:
                _make_opaque(fd)
        finally:
            os.close(fd)

    def _write(self, parent: int, name: bytes, entry: Entry, content: Iterator[bytes]) -> None:
        fd = os.open(name, _NEW_FILE, 0o600, dir_fd=parent)
        try:
            for data in content:
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
            os.fchmod(fd, self._mode(entry))
            os.utime(fd, ns=(entry.mtime, entry.mtime))
        finally:
            os.close(fd)

    def _link(self, parent: int, name: bytes, entry: Entry) -> None:
        *above, source = _parts(entry.target, "a hard link") or (b"",)
        try:
            with self._opened(tuple(above)) as directory:
                found = os.stat(source, dir_fd=directory, follow_symlinks=False)
                if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
                    raise BadLayer(f"the hard link {_shown(entry.name)} is not to a file")
                there = _look(parent, name)
                if there is not None and os.path.samestat(there, found):
                    return
                self._make_way(parent, name)
                os.link(source, name, src_dir_fd=directory, dst_dir_fd=parent, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            raise BadLayer(
                f"the hard link {_shown(entry.name)} is to {_shown(entry.target)}, which is not in the layer"
            ) from None

    def _whiteout(self, parent: int, name: bytes, in_root: bool) -> None:
        if name == _OPAQUE:
            self.opaque = self.opaque or in_root
            return _make_opaque(parent)
        if name.startswith(_OF_AUFS):
            return None
        hidden = name.removeprefix(_WHITEOUT)
        if hidden in (b"", b".", b".."):
            raise BadLayer(f"the layer has a whiteout of {_shown(hidden)!r}")
        found = _look(parent, hidden)
        if found is None:
            os.mknod(hidden, stat.S_IFCHR, os.makedev(0, 0), dir_fd=parent)
        elif stat.S_ISDIR(found.st_mode):
            fd = os.open(hidden, _DIRECTORY, dir_fd=parent)
            try:
                _make_opaque(fd)
            finally:
                os.close(fd)
        return None

    def _make_way(self, parent: int, name: bytes) -> None:
        """The last entry of a name counts."""
        found = _look(parent, name)
        if found is None:
            return None
        if not stat.S_ISDIR(found.st_mode):
            return os.unlink(name, dir_fd=parent)
        shutil.rmtree(name, dir_fd=parent)
        return None

    def _mode(self, entry: Entry) -> int:
        """The owner can always read and change it. Without setuid, setgid and sticky bits."""
        return entry.mode & 0o777 | (0o700 if entry.kind == "directory" else 0o600)

    def _count(self, entry: Entry) -> None:
        self.files += 1
        if self.files > self._limits.files:
            raise BadLayer(f"the image has more than {self._limits.files} files ([limits] image_files)")
        self.bytes += -(-entry.size // _PAGE) * _PAGE + (_PAGE if entry.kind == "directory" else 0)
        if self.bytes > self._limits.bytes:
            raise BadLayer(f"the image needs more than {self._limits.bytes} bytes ([limits] image_bytes)")


def _parts(name: bytes, what: str) -> tuple[bytes, ...]:
    if name.startswith(b"/"):
        raise BadLayer(f"the layer has {what} with the absolute name {_shown(name)}")
    parts = tuple(part for part in name.split(b"/") if part not in (b"", b"."))
    if b".." in parts:
        raise BadLayer(f"the layer has {what} that leads out of it: {_shown(name)}")
    if len(parts) > _DEEPEST:
        raise BadLayer(f"the layer has directories that are nested more than {_DEEPEST} deep")
    return parts


def _make_opaque(directory: int) -> None:
    try:
        os.setxattr(directory, "user.overlay.opaque", b"y")
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        raise OSError(
            errno.ENOTSUP, "the file system of the data directory has no extended attributes"
        ) from None


def _look(parent: int, name: bytes) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _is_whiteout(found: os.stat_result) -> bool:
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _explained(error: OSError, entry: Entry) -> Exception:
    """A name that the file system cannot have is the layer's fault; a full disk is not."""
    if error.errno in (
        errno.ENAMETOOLONG,
        errno.EMLINK,
        errno.EINVAL,
        errno.ENOTDIR,
        errno.ELOOP,
        errno.EISDIR,
    ):
        return BadLayer(f"the layer's entry {_shown(entry.name)} cannot be made: {error.strerror}")
    return error


def _shown(name: bytes) -> str:
    return ascii(name[:100].decode("utf-8", "replace"))
