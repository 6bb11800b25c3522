"""Deleted files that are still open: they take space, but no directory lists them.

Only files that a process has open are found. A file that is only mapped, or on its way through a socket, is not.
"""

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .. import procfs

_BLOCK = 512
_MAX_PROCESSES = 10_000
_DELETED = " (deleted)"


class Location(NamedTuple):
    """A directory's file system, and its path on that."""

    device: int
    path: str


def locate(top: str) -> Location | None:
    """None if there is no such directory."""
    try:
        return Location(os.stat(top).st_dev, _Mounts("self").locate(top))
    except OSError:
        return None


def sizes(top: Location, root: int, marker: str, seen: set[int]) -> Iterator[int]:
    """Yields the size of each deleted file of `top` that a process below `root`, or one with this marker, has open.

    Files in `seen` do not count again. It also yields 0 now and then, so that the caller can do other work.
    """
    for pid in _members(root, marker):
        yield 0
        mounts = _Mounts(str(pid))
        for number in _open_files(pid):
            status = _stat_deleted(pid, number, top.device)
            if status is None or status.st_ino in seen:
                continue
            if mounts.locate_open_file(pid, number).startswith(top.path + "/"):
                seen.add(status.st_ino)
                yield status.st_blocks * _BLOCK


def _members(root: int, marker: str) -> Iterable[int]:
    """Processes that have left the tree are found by their marker."""
    return dict.fromkeys(
        [root, *procfs.descendants(root, _MAX_PROCESSES), *procfs.marked_processes().get(marker, ())]
    )


def _open_files(pid: int) -> list[str]:
    """Empty if it has ended or may not be inspected."""
    try:
        return os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return []


def _stat_deleted(pid: int, number: str, device: int) -> os.stat_result | None:
    try:
        status = os.stat(f"/proc/{pid}/fd/{number}")
    except OSError:
        return None
    is_deleted = stat.S_ISREG(status.st_mode) and not status.st_nlink and status.st_dev == device
    return status if is_deleted else None


class _Mounts:
    """Finds the path of a file on its file system, whatever path a sandbox sees."""

    def __init__(self, pid: str) -> None:
        self._pid = pid
        self._read = False
        self._roots: dict[str, tuple[str, str]] = {}
        """By mount id: the part of the file system that is mounted, and where."""

    def locate_open_file(self, pid: int, number: str) -> str:
        """The path of an open file on its file system; empty if unknown."""
        try:
            path = os.readlink(f"/proc/{pid}/fd/{number}").removesuffix(_DELETED)
            with open(f"/proc/{pid}/fdinfo/{number}") as file:
                mount = next((line.split()[1] for line in file if line.startswith("mnt_id:")), "")
        except OSError:
            return ""
        root, at = self._all().get(mount, ("", ""))
        return _join(root, path.removeprefix(at.rstrip("/"))) if root and path.startswith(at) else ""

    def locate(self, path: str) -> str:
        """The path of a directory on its file system."""
        real = os.path.realpath(path)
        above = [(at, root) for root, at in self._all().values() if _is_below(real, at)]
        at, root = max(above, key=lambda mount: len(mount[0]), default=("/", "/"))
        return _join(root, real.removeprefix(at.rstrip("/")))

    def _all(self) -> dict[str, tuple[str, str]]:
        if not self._read:
            self._read = True
            with contextlib.suppress(OSError), open(f"/proc/{self._pid}/mountinfo") as file:
                for line in file:
                    fields = line.split()
                    self._roots[fields[0]] = (_unescape(fields[3]), _unescape(fields[4]))
        return self._roots


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


def _join(root: str, rest: str) -> str:
    return root.rstrip("/") + "/" + rest.lstrip("/") if rest else root


def _unescape(path: str) -> str:
    """mountinfo escapes spaces and some other characters as octal numbers."""
    for spelt, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(spelt, char)
    return path
