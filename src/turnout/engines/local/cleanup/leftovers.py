"""Finds what attempts left on disk, and removes the service's own old files: unreadable records, the supervisor's log,
a cache.

Other users can write to some of these directories, so no link is followed and only regular files are changed.
"""

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from turnout.engines.local.data.staging_plan import attempt_in
from turnout.job import Attempt
from turnout.paths import Paths

_ATTEMPT = re.compile(r"[0-9]{1,19}\.[0-9]{1,9}")
_LAST_JOB = (1 << 63) - 1
_KEPT = 4
"""The supervisor's log is cut to a quarter of its largest size."""


def attempts(paths: Paths) -> list[Attempt]:
    """The attempts that have files on disk. Other names are ignored: jobs of earlier versions could make any."""
    found: set[Attempt] = set()
    names = os.listdir(paths.attempts)
    for directory in (paths.all_copies, paths.all_exported):
        with contextlib.suppress(FileNotFoundError):
            names += os.listdir(directory)
    with contextlib.suppress(FileNotFoundError):
        names += map(attempt_in, os.listdir(paths.staging))
    for name in names:
        text = name.partition("_")[0]
        if _ATTEMPT.fullmatch(text) and (attempt := Attempt.parse(text)).job <= _LAST_JOB:
            found.add(attempt)
    return sorted(found)


def clear(paths: Paths, before: float, dry: bool) -> tuple[int, int]:
    """Removes unreadable records and the cache of the search workers, if they are older than `before`."""
    count = size = 0
    for path in (paths.bad_journal, paths.unread, paths.unreadable, *_below(paths.search)):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode) and status.st_mtime < before:
                if not dry:
                    path.unlink()
                count, size = count + 1, size + status.st_size
    return count, size


def trim_log(paths: Paths, most: int, dry: bool) -> tuple[int, int]:
    """Cuts the supervisor's log to its newest lines if it is larger than `most`."""
    flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file = os.open(paths.supervisor / "log", flags)
    except OSError:
        return 0, 0
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_size <= most:
            return 0, 0
        rest = os.pread(file, most // _KEPT, status.st_size - most // _KEPT).partition(b"\n")[2]
        if not dry:
            # The supervisor appends, so its next line follows these.
            os.ftruncate(file, 0)
            os.write(file, rest)
        return 1, status.st_size - len(rest)
    finally:
        os.close(file)


def _below(directory: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(directory):
        yield from (Path(parent) / name for name in names)
