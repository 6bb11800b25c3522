"""`file://`: directories of this machine, as far as the settings let it reach."""

import os
import pwd
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from turnout.errors import Invalid
from turnout.storage.walk import walk

_FIRST_PERSON = 1000
_NOBODY = 65534


class Root(NamedTuple):
    spelt: Path
    """As the settings have it."""
    real: Path
    writable: bool


class Found(NamedTuple):
    root: Path
    parts: tuple[str, ...]
    writable: bool

    @property
    def path(self) -> Path:
        return self.root.joinpath(*self.parts)


class HostPaths:
    """Homes and dot-directories in them hold keys and logins: they are out of reach however wide the settings are."""

    def __init__(self, host_paths: list[tuple[Path, bool]], data: Path) -> None:
        roots = [Root(path, Path(os.path.realpath(path)), writable) for path, writable in host_paths]
        # The longest first: the closest one says whether it may be written to.
        self._roots = sorted(roots, key=lambda root: len(root.spelt.parts), reverse=True)
        self._data = Path(os.path.realpath(data))
        self._homes = _homes()

    def find(self, source: str, path: PurePosixPath) -> Found:
        """Raises Invalid. Nothing is made, nothing is changed."""
        root, parts = self._beneath(source, path)
        real = root.real.joinpath(*parts)
        self._check(source, real, root)
        with walk(root.real, parts, source) as here:
            own = _stat(self._data)
            if own and os.path.samestat(os.stat(here), own):  # by another way: a bind mount
                raise Invalid(f"{source!r} is Turnout's own data directory, which no job may see")
        return Found(root.real, parts, root.writable)

    def _beneath(self, source: str, path: PurePosixPath) -> tuple[Root, tuple[str, ...]]:
        for root in self._roots:
            for start in (root.spelt, root.real):
                if path.is_relative_to(start):
                    return root, path.relative_to(start).parts
        reachable = ", ".join(str(root.spelt) for root in reversed(self._roots))
        where = f"it reaches {reachable}" if reachable else "it reaches nothing"
        raise Invalid(f"{source!r} is out of reach for file://; {where} ([storage] host_paths)")

    def _check(self, source: str, real: Path, root: Root) -> None:
        if real.is_relative_to(self._data) or self._data.is_relative_to(real):
            raise Invalid(
                f"{source!r} holds Turnout's own data directory, or lies in it: no job may see that"
            )
        for home in self._homes:
            if home.is_relative_to(real):
                raise Invalid(
                    f"{source!r} holds a home with its keys and logins: name a directory inside of it"
                )
            inside = real.relative_to(home).parts[0] if real.is_relative_to(home) else ""
            if inside.startswith(".") and not root.real.is_relative_to(home / inside):
                raise Invalid(f"{source!r} is a dot-directory of a home, where keys and logins are kept")


def _homes() -> set[Path]:
    """Of people, of root, and our own."""
    accounts = [
        one.pw_dir for one in pwd.getpwall() if one.pw_uid == 0 or _FIRST_PERSON <= one.pw_uid != _NOBODY
    ]
    homes = {Path(os.path.realpath(home)) for home in (*accounts, os.path.expanduser("~"))}
    return {home for home in homes if len(home.parts) > 1}


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None
