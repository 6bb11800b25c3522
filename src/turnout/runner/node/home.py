"""The directory below which the runner and the program work."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sys
import tempfile
from typing import Any, Dict

from .plan import Plan

_SHIMS = ("python", "python2", "python3")
INCOMING = "incoming"
"""Objects that are being fetched."""
_OWN = (INCOMING,)


class Home:
    def __init__(self, scratch: str, attempt: str, replica: str) -> None:
        """Raises OSError."""
        self.path = tempfile.mkdtemp(prefix=f"turnout-{attempt}_{replica}-", dir=scratch)

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
        shutil.rmtree(self.path, ignore_errors=True)

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
