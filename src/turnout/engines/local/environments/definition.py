"""What an environment is made of."""

import hashlib
import json
import os
import platform
from pathlib import Path
from typing import NamedTuple

from turnout import config
from turnout.errors import Misconfigured
from turnout.runtimes import runtime_table

_FORMAT = 1
"""Counts up when environments are made in another way, so that all are made again."""


class Interpreter(NamedTuple):
    path: str
    version: str
    prefixes: tuple[str, ...]
    """The directories that it needs: its environment, and the installation that the environment was made from."""
    scripts: str = ""
    """The directory of its environment's programs; empty: it is not in an environment."""


class Definition(NamedTuple):
    runtime: str
    lines: tuple[str, ...]
    """The lines of a requirements file."""
    python: Interpreter
    build: bool = False
    """Whether packages without a wheel are built."""
    preset: bool = False

    @property
    def key(self) -> str:
        """The same for the same packages on the same Python, whatever the runtime is called."""
        python = (os.path.realpath(self.python.path), self.python.version)
        content = [_FORMAT, self.lines, python, platform.machine(), platform.libc_ver(), self.build]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:24]

    @property
    def packages(self) -> str:
        """For people."""
        shown = ", ".join(self.lines[:4])
        return f"{shown} and {len(self.lines) - 4} more" if len(self.lines) > 4 else shown

    @property
    def setting(self) -> str:
        """Where a person changes it."""
        return runtime_table(self.runtime) + (" packages" if self.preset else "")


def define(name: str, runtime: config.RuntimeSettings, python: Interpreter) -> Definition:
    """Reads the requirements file. Raises Misconfigured."""
    lines = tuple(runtime.packages)
    if runtime.requirements:
        lines += _read(name, Path(runtime.requirements))
    return Definition(name, lines, python, runtime.build)


def _read(name: str, path: Path) -> tuple[str, ...]:
    setting = f"{runtime_table(name)} requirements = {str(path)!r}"
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{setting} cannot be read: {error}") from None
    lines = [stripped for line in text.splitlines() if (stripped := line.strip()) and stripped[0] != "#"]
    continued = False
    for line in lines:
        if line.startswith("-") and not continued:
            raise Misconfigured(
                f"{setting}: {line.split()[0]} is not allowed in it; the index is a setting of [runtimes], and a file "
                "includes no other"
            )
        continued = line.endswith("\\")
    return tuple(lines)
