"""`file://`: directories of this machine that the settings allow."""

import os
import pwd
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import NamedTuple, ParamSpec, TypeVar

from turnout import pools
from turnout.errors import Invalid, TimedOut
from turnout.storage.directories import Directory, open_beneath

P = ParamSpec("P")
T = TypeVar("T")

HOST_SECONDS = 10.0
"""How long a file system may take to answer."""
_FIRST_PERSONAL_UID = 1000
_NOBODY = 65534


class Root(NamedTuple):
    configured: Path
    """The path in the settings."""
    real: Path
    writable: bool


class HostDirectory(NamedTuple):
    root: Path
    parts: tuple[str, ...]
    writable: bool

    @property
    def path(self) -> Path:
        return self.root.joinpath(*self.parts)


class HostPaths:
    """The directories that `file://` may name.

    Home directories and their dot-directories hold keys and logins. A job never gets a whole home directory, and a
    dot-directory only if the settings name it or a directory in it.
    """

    may_hang = True

    def __init__(self, host_paths: list[tuple[Path, bool]], data: Path) -> None:
        roots = [Root(path, Path(os.path.realpath(path)), writable) for path, writable in host_paths]
        # Longest first: the closest root decides whether a directory is writable.
        self._roots = sorted(roots, key=lambda root: len(root.configured.parts), reverse=True)
        self._data = Path(os.path.realpath(data))
        self._homes = _homes()

    def find(self, source: str, path: PurePosixPath) -> HostDirectory:
        """Changes nothing. Raises Invalid."""
        root, parts = self._beneath(source, path)
        real = root.real.joinpath(*parts)
        self._check(source, real, root)
        with open_beneath(root.real, parts, source) as here:
            own = _stat(self._data)
            if own and os.path.samestat(os.stat(here), own):  # reached through a bind mount
                raise Invalid(f"{source!r} is Turnout's own data directory, which jobs may not see")
        return HostDirectory(root.real, parts, root.writable)

    def _beneath(self, source: str, path: PurePosixPath) -> tuple[Root, tuple[str, ...]]:
        for root in self._roots:
            for start in (root.configured, root.real):
                if path.is_relative_to(start):
                    return root, path.relative_to(start).parts
        allowed = ", ".join(str(root.configured) for root in reversed(self._roots)) or "nothing"
        raise Invalid(f"{source!r} is not allowed: [storage] host_paths allows {allowed}")

    def _check(self, source: str, real: Path, root: Root) -> None:
        if real.is_relative_to(self._data) or self._data.is_relative_to(real):
            raise Invalid(
                f"{source!r} contains Turnout's own data directory or is inside it; jobs may not see that"
            )
        for home in self._homes:
            if home.is_relative_to(real):
                raise Invalid(
                    f"{source!r} contains a home directory with its keys and logins; name a directory inside it"
                )
            inside = real.relative_to(home).parts[0] if real.is_relative_to(home) else ""
            if inside.startswith(".") and not root.real.is_relative_to(home / inside):
                raise Invalid(f"{source!r} is in a dot-directory of a home, where keys and logins are kept")


class HostPath(NamedTuple):
    """One directory, by the path in its source."""

    host: HostPaths
    source: str
    path: PurePosixPath

    @property
    def may_hang(self) -> bool:
        """It may be on a file system that does not answer: use `bind_in_time`."""
        return self.host.may_hang

    def bind(self, read_only: bool) -> Directory:
        """Raises Invalid."""
        found = self.host.find(self.source, self.path)
        return Directory(found.root, found.parts, read_only or not found.writable)

    async def bind_in_time(self, project: str, read_only: bool) -> Directory:
        """As `bind`, without blocking the event loop. Also raises TimedOut."""
        return await in_time(self.source, project, self.bind, read_only)


async def in_time(source: str, project: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs what touches a directory of the host in a thread. Raises TimedOut if its file system does not answer."""
    try:
        return await pools.mounts.run_within(HOST_SECONDS, project, work, *args, **kwargs)
    except TimedOut as error:
        raise TimedOut(f"{source!r}: the file system does not answer: {error.message}") from None


def _homes() -> set[Path]:
    """The home directories of people, of root and of the service's user."""
    accounts = [
        user.pw_dir
        for user in pwd.getpwall()
        if user.pw_uid == 0 or _FIRST_PERSONAL_UID <= user.pw_uid != _NOBODY
    ]
    homes = {Path(os.path.realpath(home)) for home in (*accounts, os.path.expanduser("~"))}
    return {home for home in homes if len(home.parts) > 1}


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None
