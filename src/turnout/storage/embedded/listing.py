"""Keys in the order of their bytes, from directories.

Within a directory `a.txt` comes before what lies in `a/`: names are put in order with the slash that follows them. So
a walk down in that order meets keys in theirs, and reads no directory that holds nothing of what is asked for.
"""

import bisect
import os
import stat
import threading
import time
from collections.abc import Generator
from contextlib import closing, suppress
from typing import NamedTuple

from turnout.storage.embedded_attributes import Info, describe
from turnout.storage.embedded_keys import can_be_key
from turnout.storage.source import LONGEST_NAME, UNFIT

_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LAST = "\U0010ffff"

_LARGE = 5_000
_MOST_NAMES = 300_000
_SETTLED = 2_000_000_000
_lock = threading.Lock()
_remembered: dict[tuple[int, int, int], list[str]] = {}
"""By device, file number and time of modification; what was used last comes last."""


class Page(NamedTuple):
    objects: list[Info]
    prefixes: list[str]
    next: str
    """Where to go on after; empty at the end."""


class Asked(NamedTuple):
    prefix: str
    delimiter: str
    after: str


def page(here: int, base: str, asked: Asked, limit: int) -> Page:
    """`here`: the directory whose keys begin with `base`, the directory part of the prefix."""
    objects: list[Info] = []
    prefixes: list[str] = []
    last = ""
    if limit <= 0:
        return Page([], [], "")
    with closing(_entries(os.open(".", _READ, dir_fd=here), base, asked)) as entries:
        for one in entries:
            if isinstance(one, Info):
                group = _group(one.key, asked)
                if group and (group == asked.after or (prefixes and prefixes[-1] == group)):
                    continue
            else:
                group = one
            if len(objects) + len(prefixes) >= limit:
                return Page(objects, prefixes, last)
            if group:
                prefixes.append(group)
                last = group
            elif isinstance(one, Info):
                objects.append(one)
                last = one.key
    return Page(objects, prefixes, "")


def _group(key: str, asked: Asked) -> str:
    """The prefix that stands for this key and its like, or nothing."""
    if not asked.delimiter:
        return ""
    end = key.find(asked.delimiter, len(asked.prefix))
    return "" if end < 0 else key[: end + len(asked.delimiter)]


def _entries(here: int, base: str, asked: Asked) -> Generator[Info | str]:
    """Objects, and with `/` as the delimiter directories, which are not gone into. Closes `here`."""
    try:
        names = _names(here, base, asked)
        if not names and base and base > asked.after and base.startswith(asked.prefix) and _is_empty(here):
            yield describe(base, here, os.fstat(here))
        for name in names:
            key = base + name
            if not name.endswith("/"):
                found = _describe(here, name, key)
                if found:
                    yield found
            elif asked.delimiter == "/" and len(key) > len(asked.prefix):
                if key > asked.after or _goes_on(here, name, key, asked):
                    yield key
            else:
                with suppress(OSError):  # gone, or another thing by now
                    below = os.open(name[:-1], _READ, dir_fd=here)
                    yield from _entries(below, key, asked)
    finally:
        os.close(here)


def _names(here: int, base: str, asked: Asked) -> list[str]:
    """Those of the directory that what is asked for may begin with."""
    # Only the first directory can be within the prefix, and what is left of that then has no slash.
    prefix = asked.prefix[len(base) :]
    within = asked.after.startswith(base)
    if asked.after > base and not within:
        return []
    names = _sorted_names(here, base)
    after = asked.after[len(base) :] if within else ""
    begin = bisect.bisect_right(names, after) if after else 0
    if begin and names[begin - 1].endswith("/") and after.startswith(names[begin - 1]):
        begin -= 1
    begin = max(begin, bisect.bisect_left(names, prefix))
    end = bisect.bisect_left(names, prefix + _LAST, begin)
    return names[begin:end]


def _sorted_names(here: int, base: str) -> list[str]:
    """All of a directory, those of directories with a slash. Large ones are remembered for the next page."""
    status = os.fstat(here)
    state = (status.st_dev, status.st_ino, status.st_mtime_ns)
    with _lock:
        known = _remembered.pop(state, None)
        if known is not None:
            _remembered[state] = known
            return known
    names = _read(here, base)
    # A directory that changed just now may change again without its time of modification doing so.
    if len(names) >= _LARGE and status.st_mtime_ns < time.time_ns() - _SETTLED:
        with _lock:
            _remembered[state] = names
            while sum(map(len, _remembered.values())) > _MOST_NAMES:
                del _remembered[next(iter(_remembered))]
    return names


def _read(here: int, base: str) -> list[str]:
    names: list[str] = []
    room = can_be_key(base + "x" * LONGEST_NAME)
    with os.scandir(here) as entries:
        for entry in entries:
            name = entry.name
            if UNFIT.search(name) or not (room or can_be_key(base + name)):
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


def _goes_on(here: int, name: str, key: str, asked: Asked) -> bool:
    """Whether anything in this directory comes after a key that lies in it."""
    if key == asked.after:
        return False
    try:
        below = os.open(name[:-1], _READ, dir_fd=here)
    except OSError:
        return False
    with closing(_entries(below, key, asked._replace(delimiter=""))) as entries:
        return next(entries, None) is not None


def _describe(here: int, name: str, key: str) -> Info | None:
    with suppress(OSError):
        status = os.stat(name, dir_fd=here, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            return describe(key, f"/proc/self/fd/{here}/{name}", status)
    return None
