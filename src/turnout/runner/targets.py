"""Where mounts and scratch directories may be, and how that is shown where there is no sandbox."""

import itertools
import posixpath
from typing import NamedTuple

SHIMS = "/opt/turnout/bin"
FARM = "tmp/root"
"""Without a sandbox: where the tree is laid out that it would show. Among what goes with the workspace."""

# Where a mount would hide what the sandbox itself is made of.
_TAKEN = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/proc",
    "/sys",
    "/dev",
    SHIMS,
)


class Bind(NamedTuple):
    root: str
    parts: tuple[str, ...]
    """From a root that no job can change, the way down to the source, on which no link is followed."""
    target: str
    read_only: bool

    @property
    def source(self) -> str:
        return posixpath.join(self.root, *self.parts)


class Impossible(Exception):
    """This launch cannot be planned; the message says why."""


def scratch_paths(wanted: tuple[str, ...], binds: list[Bind]) -> list[str]:
    """Without those that a mount takes the place of; the outer ones first."""
    taken = {bind.target.rstrip("/") for bind in binds}
    return sorted({path.rstrip("/") or "/" for path in wanted} - taken)


def check_targets(targets: list[str], scratch: list[str]) -> None:
    for target in targets:
        _check_target(target, "mount target")
    for path in scratch:
        _check_target(path, "scratch directory")
        outer = next((target for target in targets if within(path, target.rstrip("/"))), None)
        if outer:
            raise Impossible(f"scratch directory {path} lies within {outer}, which is a mount's")
    # The mount point of an inner one would be made in the outer one, through whatever links a job has put there.
    for inner, outer in itertools.permutations(targets, 2):
        if inner.rstrip("/").startswith(outer.rstrip("/") + "/"):
            raise Impossible(f"mount target {inner} lies within {outer}, which is another mount's")


def _check_target(target: str, what: str) -> None:
    if not target.startswith("/") or posixpath.normpath(target) != target.rstrip("/"):
        raise Impossible(f"{what} {target!r} must be an absolute path without . and ..")
    if any(target == taken or target.startswith(taken + "/") for taken in _TAKEN):
        raise Impossible(f"{what} {target} lies in a directory of the system; choose another, such as /data")


def within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory + "/")


def farm(binds: list[Bind], extra: list[str]) -> tuple[list[str], dict[str, str]]:
    """Directories, parents first, and links that show the mounts as the sandbox would."""
    links: dict[str, str] = {}
    dirs: dict[str, None] = {}
    for bind in binds:
        name = FARM + bind.target.rstrip("/")
        dirs |= dict.fromkeys(_parents(name))
        links[name] = bind.source
    for name in extra:
        dirs |= dict.fromkeys([*_parents(name), name])
    return list(dirs), links


def _parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:length]) for length in range(2, len(parts))]


def move(text: str, moved: dict[str, str]) -> str:
    """`/data/x` and `--dir=/data/x` with the mount's real directory for its target; anything else as it is."""
    if not moved:
        return text
    flag, equals, path = text.partition("=") if text.startswith("-") else ("", "", text)
    for target, source in moved.items():
        if path == target or path.startswith(target + "/"):
            return flag + equals + source + path[len(target) :]
    return text
