"""Lists the keys of a bucket in the order of their bytes, by walking its directories.

The names of directories are sorted with the slash that follows them, so that `a.txt` comes before `a/x`. A walk in that
order yields keys in order, and skips directories that cannot contain a requested key.
"""

import bisect
import os
import stat
import threading
import time
from collections.abc import Generator
from contextlib import closing, suppress
from typing import NamedTuple

from turnout.storage.embedded.attributes import Info, describe
from turnout.storage.embedded.keys import can_be_key
from turnout.storage.source import MAX_NAME, UNFIT

_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LAST = "\U0010ffff"

_CACHE_FROM = 5_000
_CACHED_MOST = 300_000
_SETTLED = 2_000_000_000
_lock = threading.Lock()
_cached_names: dict[tuple[int, int, int], list[str]] = {}
"""By device, inode and modification time, the least recently used first."""


class ObjectPage(NamedTuple):
    objects: list[Info]
    prefixes: list[str]
    next: str
    """The `after` of the next page; empty on the last one."""


class ListOptions(NamedTuple):
    prefix: str
    delimiter: str
    after: str


def page(here: int, base: str, request: ListOptions, limit: int) -> ObjectPage:
    """`here`: a descriptor of the directory `base`, which is the directory part of the prefix."""
    objects: list[Info] = []
    prefixes: list[str] = []
    last = ""
    if limit <= 0:
        return ObjectPage([], [], "")
    with closing(_entries(os.open(".", _READ, dir_fd=here), base, request)) as entries:
        for entry in entries:
            if isinstance(entry, Info):
                group = _group(entry.key, request)
                if group and (group == request.after or (prefixes and prefixes[-1] == group)):
                    continue
            else:
                group = entry
            if len(objects) + len(prefixes) >= limit:
                return ObjectPage(objects, prefixes, last)
            if group:
                prefixes.append(group)
                last = group
            elif isinstance(entry, Info):
                objects.append(entry)
                last = entry.key
    return ObjectPage(objects, prefixes, "")


def _group(key: str, request: ListOptions) -> str:
    """The common prefix that replaces this key in the list, or an empty string."""
    if not request.delimiter:
        return ""
    end = key.find(request.delimiter, len(request.prefix))
    return "" if end < 0 else key[: end + len(request.delimiter)]


def _entries(here: int, base: str, request: ListOptions) -> Generator[Info | str]:
    """Yields objects; with the delimiter `/`, also the keys of directories, without entering them. Closes `here`."""
    try:
        names = _names(here, base, request)
        if (
            not names
            and base
            and base > request.after
            and base.startswith(request.prefix)
            and _is_empty(here)
        ):
            yield describe(base, here, os.fstat(here))
        for name in names:
            key = base + name
            if not name.endswith("/"):
                found = _describe(here, name, key)
                if found:
                    yield found
            elif request.delimiter == "/" and len(key) > len(request.prefix):
                if key > request.after or _has_keys_after(here, name, key, request):
                    yield key
            else:
                with suppress(OSError):  # removed or replaced meanwhile
                    below = os.open(name[:-1], _READ, dir_fd=here)
                    yield from _entries(below, key, request)
    finally:
        os.close(here)


def _names(here: int, base: str, request: ListOptions) -> list[str]:
    """The names in the directory with which a requested key can begin."""
    # A rest of the prefix, without a slash, remains only in the first directory.
    prefix = request.prefix[len(base) :]
    within = request.after.startswith(base)
    if request.after > base and not within:
        return []
    names = _sorted_names(here, base)
    after = request.after[len(base) :] if within else ""
    begin = bisect.bisect_right(names, after) if after else 0
    if begin and names[begin - 1].endswith("/") and after.startswith(names[begin - 1]):
        begin -= 1
    begin = max(begin, bisect.bisect_left(names, prefix))
    end = bisect.bisect_left(names, prefix + _LAST, begin)
    return names[begin:end]


def _sorted_names(here: int, base: str) -> list[str]:
    """All names in a directory; directories end with a slash. Long lists are cached for the next page."""
    status = os.fstat(here)
    state = (status.st_dev, status.st_ino, status.st_mtime_ns)
    with _lock:
        known = _cached_names.pop(state, None)
        if known is not None:
            _cached_names[state] = known
            return known
    names = _read(here, base)
    # A directory that has just changed may change again within the resolution of its modification time.
    if len(names) >= _CACHE_FROM and status.st_mtime_ns < time.time_ns() - _SETTLED:
        with _lock:
            _cached_names[state] = names
            while sum(map(len, _cached_names.values())) > _CACHED_MOST:
                del _cached_names[next(iter(_cached_names))]
    return names


def _read(here: int, base: str) -> list[str]:
    names: list[str] = []
    any_name_fits = can_be_key(base + "x" * MAX_NAME)
    with os.scandir(here) as entries:
        for entry in entries:
            name = entry.name
            if UNFIT.search(name) or not (any_name_fits or can_be_key(base + name)):
                continue
            if entry.is_file(follow_symlinks=False):
                names.append(name)
            elif entry.is_dir(follow_symlinks=False):
                names.append(name + "/")
    names.sort()
    return names


def _is_empty(here: int) -> bool:
    with os.scandir(here) as entries:
        return next(entries, None) is None


def _has_keys_after(here: int, name: str, key: str, request: ListOptions) -> bool:
    """Whether the directory has keys after `request.after`."""
    if key == request.after:
        return False
    try:
        below = os.open(name[:-1], _READ, dir_fd=here)
    except OSError:
        return False
    with closing(_entries(below, key, request._replace(delimiter=""))) as entries:
        return next(entries, None) is not None


def _describe(here: int, name: str, key: str) -> Info | None:
    with suppress(OSError):
        status = os.stat(name, dir_fd=here, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            return describe(key, f"/proc/self/fd/{here}/{name}", status)
    return None
