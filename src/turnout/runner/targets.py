"""Where mounts and scratch directories may be, and how they are shown without a sandbox."""

import itertools
import posixpath
from typing import NamedTuple

SHIMS = "/opt/turnout/bin"
MODULES_ZIP = "modules.zip"
"""Modules for programs, beside the shims, so that they need no mount of their own."""
FARM = "space/tmp/root"
"""Without a sandbox: the tree that a sandbox would show, in the replica's directory. It is removed with the workspace.
"""
_FIXED = len(FARM.split("/"))
"""The leading parts that all names in it share; all but the last exist already."""

# A mount there would hide the sandbox's own files.
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
    """The way from `root`, which no job can change, down to the source. No link on it is followed."""
    target: str
    read_only: bool

    @property
    def source(self) -> str:
        return posixpath.join(self.root, *self.parts)


class Impossible(Exception):
    """The launch cannot be planned; the message says why."""


def scratch_paths(wanted: tuple[str, ...], binds: list[Bind]) -> list[str]:
    """Scratch directories, outer ones first, without those that a mount replaces."""
    taken = {bind.target.rstrip("/") for bind in binds}
    return sorted({path.rstrip("/") or "/" for path in wanted} - taken)


def check_targets(targets: list[str], scratch: list[str]) -> None:
    for target in targets:
        _check_target(target, "mount target")
    for path in scratch:
        _check_target(path, "scratch directory")
        outer = next((target for target in targets if within(path, target.rstrip("/"))), None)
        if outer:
            raise Impossible(f"scratch directory {path} lies within {outer}, which is a mount target")
    # The inner mount point would be made inside the outer mount, through any link that a job has put there.
    for inner, outer in itertools.permutations(targets, 2):
        if inner.rstrip("/").startswith(outer.rstrip("/") + "/"):
            raise Impossible(f"mount target {inner} lies within {outer}, which is another mount target")


def _check_target(target: str, what: str) -> None:
    if not target.startswith("/") or posixpath.normpath(target) != target.rstrip("/"):
        raise Impossible(f"{what} {target!r} must be an absolute path without . and ..")
    if any(target == taken or target.startswith(taken + "/") for taken in _TAKEN):
        raise Impossible(f"{what} {target} lies in a directory of the system; choose another, such as /data")


def within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory + "/")


def farm(binds: list[Bind], extra: list[str]) -> tuple[list[str], dict[str, str]]:
    """Directories, parents first, and links that show the mounts as a sandbox would."""
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
    return ["/".join(parts[:length]) for length in range(_FIXED, len(parts))]


def rewrite(text: str, real_paths: dict[str, str]) -> str:
    """Replaces a mount's target at the start of `/data/x` or `--dir=/data/x` by its real directory."""
    if not real_paths:
        return text
    flag, equals, path = text.partition("=") if text.startswith("-") else ("", "", text)
    for target, source in real_paths.items():
        if path == target or path.startswith(target + "/"):
            return flag + equals + source + path[len(target) :]
    return text
