"""What lies below a URL of a bucket, as `os.walk`, `os.scandir`, `os.stat` and `glob` show directories."""

from __future__ import annotations

import os
import re
import stat as modes
from types import TracebackType
from typing import Dict, Iterator, List, Optional, Tuple, Type

from . import _copies, _objects
from ._errors import MissingObject, not_exists
from ._objects import Object
from ._paths import Place, is_remote, place

_MAGIC = re.compile(r"[*?[]")
_ANY_DEPTH = r"(?:[^./][^/]*/)*"


class Stat:
    """`length`, `mtime_nsec`, `is_directory`, and the names of `os.stat_result`."""

    def __init__(self, length: int, mtime_nsec: int, is_directory: bool) -> None:
        self.length = self.st_size = self.size = length
        self.mtime_nsec = self.st_mtime_ns = mtime_nsec
        self.st_mtime = self.st_atime = self.st_ctime = mtime_nsec / 1e9
        self.is_directory = is_directory
        self.st_mode = (modes.S_IFDIR | 0o755) if is_directory else (modes.S_IFREG | 0o644)
        self.st_ino = self.st_dev = self.st_uid = self.st_gid = 0
        self.st_nlink = 1

    def __repr__(self) -> str:
        return f"Stat(length={self.length}, mtime_nsec={self.mtime_nsec}, is_directory={self.is_directory})"


class Entry:
    """Like `os.DirEntry`."""

    def __init__(self, directory: str, name: str, found: Optional[Object]) -> None:
        """`found`: None for a directory."""
        self.name = name
        self.path = f"{directory.rstrip('/')}/{name}"
        self._found = found

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._found is None

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._found is not None

    def is_symlink(self) -> bool:
        return False

    def inode(self) -> int:
        return 0

    def stat(self, *, follow_symlinks: bool = True) -> Stat:
        return _stat(self._found)

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"


class Entries:
    """Like what `os.scandir` returns."""

    def __init__(self, found: Iterator[Entry]) -> None:
        self._found = found

    def __iter__(self) -> Iterator[Entry]:
        return self._found

    def __next__(self) -> Entry:
        return next(self._found)

    def close(self) -> None:
        self._found = iter(())

    def __enter__(self) -> Entries:
        return self

    def __exit__(
        self,
        _kind: Optional[Type[BaseException]],
        _error: Optional[BaseException],
        _trace: Optional[TracebackType],
    ) -> None:
        self.close()


def stat_of(name: str) -> Stat:
    """Raises MoxFileNotExistsException."""
    if not is_remote(name):
        try:
            seen = os.stat(name)
        except FileNotFoundError:
            raise not_exists(name) from None
        return Stat(seen.st_size, seen.st_mtime_ns, modes.S_ISDIR(seen.st_mode))
    where = place(name)
    if where.key and not where.key.endswith("/"):
        found = _objects.head(where.bucket, where.key)
        if found:
            return _stat(found)
    try:
        if _copies.is_directory(where):
            return _stat(None)
    except MissingObject:
        pass
    raise not_exists(name)


def entries(url: str) -> Entries:
    """Raises MoxFileNotExistsException."""
    below, files = _level(place(url), url)
    return Entries(
        iter(
            [Entry(url, name, None) for name in below]
            + [Entry(url, name, files[name]) for name in sorted(files)]
        )
    )


def walk_bucket(url: str, topdown: bool) -> Iterator[Tuple[str, List[str], List[str]]]:
    """Raises MoxFileNotExistsException."""
    below, files = _level(place(url), url)
    level = (url, below, sorted(files))
    if topdown:
        yield level
    for name in below:
        yield from walk_bucket(f"{url.rstrip('/')}/{name}", topdown)
    if not topdown:
        yield level


def match(pattern: str, recursive: bool) -> List[str]:
    where = place(pattern)
    fixed: List[str] = []
    for part in where.key.split("/"):
        if _MAGIC.search(part):
            break
        fixed.append(part)
    else:
        try:
            stat_of(pattern)
        except FileNotFoundError:
            return []
        return [pattern]
    prefix = "".join(f"{part}/" for part in fixed)
    regex = _regex(where.key.rstrip("/"), recursive)
    found: Dict[str, None] = {}
    depth = where.key.rstrip("/").count("/")
    try:
        if depth == len(fixed):  # the last name alone has wildcards: one level is enough
            below, files = _level(Place(where.scheme, where.bucket, prefix), pattern)
            names = [*below, *files]
            found = dict.fromkeys(f"{prefix}{name}" for name in names)
        else:
            for page in _objects.listing(where.bucket, prefix):
                for entry in page.objects:
                    parts = entry.key.rstrip("/").split("/")
                    found.update(dict.fromkeys("/".join(parts[:count]) for count in range(1, len(parts) + 1)))
    except FileNotFoundError:
        return []
    return sorted(where.url(key) for key in found if regex.fullmatch(key))


def _regex(pattern: str, recursive: bool) -> "re.Pattern[str]":
    """As in `glob`: wildcards match within one name, and no name that begins with a dot unless they say so."""
    *above, last = pattern.split("/")
    parts = [_ANY_DEPTH if part == "**" and recursive else f"{_name(part)}/" for part in above]
    parts.append(f"{_ANY_DEPTH}[^./][^/]*" if last == "**" and recursive else _name(last))
    return re.compile("".join(parts))


def _name(part: str) -> str:
    found = ["(?![.])"] if part[:1] in ("*", "?", "[") else []
    at = 0
    while at < len(part):
        letter = part[at]
        end = part.find("]", at + 2) if letter == "[" else -1
        if letter in "*?":
            found.append("[^/]*" if letter == "*" else "[^/]")
        elif end > 0:
            inside = part[at + 1 : end].replace("\\", r"\\").replace("[", r"\[")
            found.append(f"[{'^' + inside[1:] if inside[0] == '!' else inside}]")
            at = end
        else:
            found.append(re.escape(letter))
        at += 1
    return "".join(found)


def _level(where: Place, url: str) -> Tuple[List[str], Dict[str, Object]]:
    """The directories and the files of one level. Raises MoxFileNotExistsException."""
    prefix = where.directory
    below: Dict[str, None] = {}
    files: Dict[str, Object] = {}
    anything = False
    try:
        for page in _objects.listing(where.bucket, prefix, "/"):
            below.update((name[len(prefix) :].rstrip("/"), None) for name in page.prefixes)
            for entry in page.objects:
                anything = True
                if entry.key.endswith("/"):
                    if entry.key != prefix:
                        below[entry.key[len(prefix) :].rstrip("/")] = None
                else:
                    files[entry.key[len(prefix) :]] = entry
    except MissingObject:
        raise not_exists(url) from None
    if prefix and not (anything or below):
        raise not_exists(url)
    return sorted(below), files


def _stat(found: Optional[Object]) -> Stat:
    return Stat(found.size, int(found.mtime * 1e9), False) if found else Stat(0, 0, True)
