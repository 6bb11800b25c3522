"""The program's view of the file system, made by bubblewrap: this node as it is, with mounts at their exact targets.

Nothing is created on the node itself. Where a target does not exist, its deepest existing parent is shown as an empty
directory in memory into which everything that the real one contains is bound, and so on down the path.
"""

from __future__ import annotations

import os
import subprocess
from typing import Dict, Iterator, List, Set, Tuple

from .errors import NotStarted
from .plan import Bind
from .settings import find_program

_CHECK_SECONDS = 20
_MOST_ARGUMENTS = 8900
"""Bubblewrap takes at most 9000."""
_OWN = ["--die-with-parent"]


def find() -> str:
    """The path of a bubblewrap that works here; empty: there is none."""
    program = find_program("bwrap")
    if not program:
        return ""
    command = [program, *_options(), "--dev-bind", "/", "/", "--tmpfs", "/tmp", "true"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_CHECK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    # The main thread may have reaped it, and its exit code with it. But it prints only if it fails.
    return "" if done.returncode or done.stdout else program


def options(binds: List[Bind], env: Dict[str, str], cwd: str) -> List[str]:
    """The options of bubblewrap, for a file descriptor: the environment does not belong into a command line."""
    found = [*_options(), *_view(binds)]
    for name, value in env.items():
        found += ("--setenv", name, value)
    found += ("--chdir", cwd)
    if len(found) > _MOST_ARGUMENTS:
        raise NotStarted(
            "staging",
            None,
            "the sandbox could not be made: too many files lie beside the targets of the mounts",
        )
    return found


def find_source(path: str, binds: List[Bind]) -> str:
    """The path on this node of what the program finds at `path`."""
    for bind in sorted(binds, key=lambda bind: -len(bind.target)):
        target = bind.target.rstrip("/")
        if path == target or path.startswith(target + "/"):
            return bind.source + path[len(target) :]
    return path


def _options() -> List[str]:
    # Only root may keep capabilities, and only root has them.
    return [*_OWN, *(["--cap-add", "ALL"] if os.geteuid() == 0 else [])]


def _view(binds: List[Bind]) -> List[str]:
    ordered = sorted(binds, key=lambda bind: bind.target.rstrip("/").count("/"))
    targets = {os.path.normpath(bind.target): bind for bind in ordered}
    missing = [
        target for target, bind in targets.items() if not _inside(target, targets) and not _fits(target, bind)
    ]
    shown = list(_show(missing))
    for bind in ordered:
        shown += ("--ro-bind" if bind.read_only else "--bind", bind.source, bind.target)
    return shown


def _inside(target: str, targets: Dict[str, Bind]) -> bool:
    """Whether another bind contains it. Then bubblewrap makes the target in the source of that one."""
    parent = os.path.dirname(target)
    while parent != "/":
        if parent in targets:
            return True
        parent = os.path.dirname(parent)
    return False


def _fits(target: str, bind: Bind) -> bool:
    """Whether the source can be bound at the target as it is: bubblewrap follows links there, and makes nothing."""
    if not os.path.exists(target):
        return False
    return os.path.isdir(target) == os.path.isdir(bind.source)


def _show(missing: List[str]) -> Iterator[str]:
    """Options that show the node, with room for targets that do not exist."""
    made: Set[str] = set()
    for target in missing:
        made.update(_rebuilt(target))
    if "/" not in made:
        yield from ("--dev-bind", "/", "/")
    hidden = set(missing)
    for directory in sorted(made, key=lambda path: (path.count("/"), path)):
        if directory != "/":
            yield from ("--tmpfs", directory)
        for name, is_link in _entries(directory):
            path = os.path.join(directory, name)
            if path in made or path in hidden:
                continue
            if is_link:
                yield from ("--symlink", os.readlink(path), path)
            else:
                yield from ("--dev-bind-try", path, path)


def _rebuilt(target: str) -> Iterator[str]:
    """The directories that have to be shown anew so that the target can be made: the deepest one that exists.

    The way to it may lead through links. They become real directories, so that the target is where it should be.
    """
    parent = os.path.dirname(target)
    while not os.path.isdir(parent):
        parent = os.path.dirname(parent)
    yield parent
    while parent != "/":
        above = os.path.dirname(parent)
        if os.path.islink(parent):
            yield above
        parent = above


def _entries(directory: str) -> List[Tuple[str, bool]]:
    try:
        with os.scandir(directory) as entries:
            return sorted((entry.name, entry.is_symlink()) for entry in entries)
    except OSError:
        return []
