"""The directory below which the runner and the program work."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from typing import Any, Dict

from .plan import Plan

_SHIMS = ("python", "python2", "python3")
_MODULES_ZIP = "modules.zip"
INCOMING = "incoming"
"""Objects that are being fetched."""
_OWN = (INCOMING,)


class Home:
    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self.path = path
        os.makedirs(path, mode=0o700, exist_ok=True)

    @staticmethod
    def make(scratch: str, attempt: str, replica: str) -> Home:
        """A new directory. Raises OSError."""
        return Home(os.path.join(scratch, f"turnout-{attempt}_{replica}-{os.urandom(8).hex()}"))

    def __truediv__(self, name: str) -> str:
        return os.path.join(self.path, name)

    def prepare(self, plan: Plan) -> None:
        """Makes what the plan asks for. Raises OSError."""
        mounts = [mount.directory for mount in plan.mounts]
        for name in (*_OWN, *plan.dirs, *mounts):
            os.makedirs(self._inside(name), mode=0o700, exist_ok=True)
        for name, target in plan.links.items():
            path = self._inside(name)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.symlink(target, path)
        if plan.python_shims:
            os.makedirs(self / "shims", mode=0o700, exist_ok=True)
            for name in _SHIMS:
                self._write_shim(self / f"shims/{name}", plan.python or sys.executable)
        if "TURNOUT_MODULES" in plan.env:
            self._write_modules(self / f"shims/{_MODULES_ZIP}")

    def _write_modules(self, path: str) -> None:
        """The modules that programs import, which are in the runner's own package."""
        import pkgutil  # most jobs do not need it, and it takes a millisecond

        data = pkgutil.get_data(__name__.rpartition(".")[0], _MODULES_ZIP) or b""
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)

    def _write_shim(self, path: str, python: str) -> None:
        """A script: through a link, the interpreter of an environment would not find it."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n')
        os.chmod(path, 0o700)

    def keep(self, name: str, document: Dict[str, Any]) -> None:
        """Writes a document, whole or not at all. Raises OSError."""
        with open(self / f"{name}.new", "w", encoding="utf-8") as file:
            json.dump(document, file)
        os.replace(self / f"{name}.new", self / name)

    def drop(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self / name)

    def remove(self) -> None:
        _make_removable(self.path)
        _remove(self.path)

    def _inside(self, name: str) -> str:
        path = os.path.normpath(self / name)
        if not path.startswith(self.path + os.sep):
            raise PermissionError(1, "the plan leads outside of the home directory", name)
        return path


def _make_removable(path: str) -> None:
    """A program may have left directories that even their owner cannot write."""
    for directory, names, _ in os.walk(path):
        for name in names:
            below = os.path.join(directory, name)
            if not os.path.islink(below):
                with contextlib.suppress(OSError):
                    os.chmod(below, 0o700)


def _remove(path: str) -> None:
    """As much of it as can be removed."""
    for directory, names, files in os.walk(path, topdown=False):
        for name in (*files, *names):
            below = os.path.join(directory, name)
            with contextlib.suppress(OSError):
                if name in files or os.path.islink(below):
                    os.unlink(below)
                else:
                    os.rmdir(below)
    with contextlib.suppress(OSError):
        os.rmdir(path)
