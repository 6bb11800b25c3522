"""The Python interpreter of each runtime on this machine, and the shims `python`, `python3`, … that start it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec

from turnout import config
from turnout.engines.local.users.account import EXECUTE, Account
from turnout.errors import Misconfigured
from turnout.runner.plan import PYTHONS, Runtime

_PRINT_VERSION = "import json, sys; print(json.dumps([sys.version.split()[0], sys.prefix, sys.base_prefix]))"
_SHIM = '#!/bin/sh\nexec "{python}" "$@"\n'


class Interpreter(NamedTuple):
    path: str
    version: str
    prefixes: tuple[str, ...]
    """The directories that it needs: its environment, and the installation that the environment was made from."""


class Runtimes:
    """The runtimes of the settings. Every other name gets the host's Python."""

    def __init__(
        self,
        directory: Path,
        account: Account,
        wanted: dict[str, config.RuntimeSettings],
        nodes: bool = False,
    ) -> None:
        """`nodes`: there are clusters beyond this machine, so an interpreter need not be here."""
        self._directory = directory
        self._wanted = wanted
        self._host = host_python(account)
        self._by_path: dict[str, Interpreter] = {self._host.path: self._host}
        self.missing: dict[str, str] = {}
        """Why jobs on this machine cannot use a runtime."""
        for name, runtime in wanted.items():
            if not runtime.python:
                continue
            try:
                _check(name, runtime, account)
                self._by_path.setdefault(runtime.python, inspect(runtime.python))
            except Misconfigured as error:
                if not nodes:
                    raise
                self.missing[name] = error.message
        self._ready = {name: self._make(name) for name in wanted if name not in self.missing}
        self._default = self._make("")

    def get(self, name: str) -> Runtime:
        return self._ready.get(name, self._default)

    def describe(self, name: str) -> str:
        if name in self.missing:
            return f"{self._wanted[name].python}, which this machine does not have"
        found = self._interpreter(name)
        return f"Python {found.version} ({found.path})"

    def _interpreter(self, name: str) -> Interpreter:
        runtime = self._wanted.get(name)
        return self._by_path[runtime.python] if runtime and runtime.python else self._host

    def _make(self, name: str) -> Runtime:
        python = self._interpreter(name)
        shims = self._directory / (name or "host").replace("/", "_")
        write_shims(shims, python.path)
        binds = [(prefix, prefix) for prefix in python.prefixes]
        if name:
            binds += [(source, target) for target, source in self._wanted[name].mounts.items()]
        return Runtime(python.path, str(shims), tuple(binds))


def host_python(account: Account) -> Interpreter:
    """The first python3 on the PATH that jobs may execute. Skips scripts and Turnout's own environment."""
    own = sys.prefix if sys.prefix != sys.base_prefix else None
    skipped: list[str] = []
    for directory in [*config.search_path(), "/usr/bin", "/usr/local/bin"]:
        candidate = Path(directory) / "python3"
        if not os.path.isfile(candidate) or (own and candidate.is_relative_to(own)) or _is_script(candidate):
            continue
        if account.blocked(candidate, EXECUTE) is None:
            return inspect(str(candidate))
        skipped.append(str(candidate))
    raise Misconfigured(
        f"there is no python3 on the PATH that {account.name} may execute (skipped: {', '.join(skipped) or 'none'}); "
        "install one, such as Debian's python3"
    )


def inspect(python: str) -> Interpreter:
    """Runs the interpreter to get its version and directories. Raises Misconfigured."""
    try:
        done = subprocess.run(
            [python, "-I", "-c", _PRINT_VERSION],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=20,
            env={},
        )
        version, prefix, base = msgspec.json.decode(done.stdout, type=tuple[str, str, str])
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError) as error:
        raise Misconfigured(f"{python} is not a working Python interpreter: {error}") from None
    real = os.path.dirname(os.path.dirname(os.path.realpath(python)))
    # Everything below /usr is visible anyway. An interpreter may also be a link into a third directory.
    prefixes = dict.fromkeys(path for path in (base, prefix, real) if not Path(path).is_relative_to("/usr"))
    return Interpreter(python, version, tuple(path for path in prefixes if path != "/"))


def write_shims(directory: Path, python: str) -> None:
    """Writes scripts, because through a link an interpreter would not find its environment."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    directory.chmod(0o755)
    text = _SHIM.format(python=python)
    for name in PYTHONS:
        shim = directory / name
        if not shim.exists() or shim.read_text() != text:
            fresh = shim.with_suffix(".new")
            fresh.write_text(text)
            fresh.chmod(0o755)
            fresh.rename(shim)


def _check(name: str, runtime: config.RuntimeSettings, account: Account) -> None:
    python = Path(runtime.python)
    if not python.is_absolute() or not python.is_file():
        raise Misconfigured(
            f"[runtimes.{name}] python = {runtime.python!r} must be the absolute path of an interpreter"
        )
    obstacle = account.blocked(python, EXECUTE)
    if obstacle is not None:
        raise Misconfigured(
            f"[runtimes.{name}] python = {runtime.python!r} cannot be executed by {account.name}: "
            f"the permissions of {obstacle} do not allow it"
        )
    for target, source in runtime.mounts.items():
        if not Path(source).is_dir() or not target.startswith("/"):
            raise Misconfigured(
                f"[runtimes.{name}] mounts: {target} = {source!r} must be an absolute path and a directory of this host"
            )


def _is_script(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        # The service cannot read it. Whether the job's user can is checked next.
        return False
