"""Which Python a runtime means on this machine, and the program names that lead to it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec

from turnout import config
from turnout.engines.local.account import EXECUTE, Account
from turnout.errors import Misconfigured
from turnout.runner.plan import PYTHONS, Runtime

_ASK = "import json, sys; print(json.dumps([sys.version.split()[0], sys.prefix, sys.base_prefix]))"
_SHIM = '#!/bin/sh\nexec "{python}" "$@"\n'


class Interpreter(NamedTuple):
    path: str
    version: str
    prefixes: tuple[str, ...]
    """What it needs to see: its environment, and the installation that was made from."""


class Runtimes:
    """One for each runtime of the settings, and the host's for every other name."""

    def __init__(self, directory: Path, account: Account, wanted: dict[str, config.Runtime]) -> None:
        self._directory = directory
        self._wanted = wanted
        self._host = host_python(account)
        self._by_path: dict[str, Interpreter] = {self._host.path: self._host}
        for name, runtime in wanted.items():
            if runtime.python:
                _check(name, runtime, account)
                self._by_path.setdefault(runtime.python, ask(runtime.python))
        self._ready = {name: self._make(name) for name in wanted}
        self._default = self._make("")

    def get(self, name: str) -> Runtime:
        return self._ready.get(name, self._default)

    def describe(self, name: str) -> str:
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
    """The first python3 on the PATH that the job's user may execute: a real one, and not Turnout's own environment."""
    ours = sys.prefix if sys.prefix != sys.base_prefix else None
    passed: list[str] = []
    for directory in [*config.search_path(), "/usr/bin", "/usr/local/bin"]:
        candidate = Path(directory) / "python3"
        if (
            not os.path.isfile(candidate)
            or (ours and candidate.is_relative_to(ours))
            or _is_script(candidate)
        ):
            continue
        if account.blocked(candidate, EXECUTE) is None:
            return ask(str(candidate))
        passed.append(str(candidate))
    raise Misconfigured(
        f"no python3 on the PATH that {account.name} may execute (passed over: {', '.join(passed) or 'none'}); "
        "install one, such as Debian's python3"
    )


def ask(python: str) -> Interpreter:
    """What the interpreter says of itself."""
    try:
        done = subprocess.run(
            [python, "-I", "-c", _ASK],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=20,
            env={},
        )
        version, prefix, base = msgspec.json.decode(done.stdout, type=tuple[str, str, str])
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError) as error:
        raise Misconfigured(f"{python} is not a Python that works: {error}") from None
    real = os.path.dirname(os.path.dirname(os.path.realpath(python)))
    # Below /usr everything is seen already; an interpreter may also be a link into a third place.
    prefixes = dict.fromkeys(
        place for place in (base, prefix, real) if not Path(place).is_relative_to("/usr")
    )
    return Interpreter(python, version, tuple(place for place in prefixes if place != "/"))


def write_shims(directory: Path, python: str) -> None:
    """Scripts and not links: through a link an interpreter would not find the environment that it belongs to."""
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


def _check(name: str, runtime: config.Runtime, account: Account) -> None:
    python = Path(runtime.python)
    if not python.is_absolute() or not python.is_file():
        raise Misconfigured(
            f"[runtimes.{name}] python = {runtime.python!r} must be the path of an interpreter"
        )
    wall = account.blocked(python, EXECUTE)
    if wall is not None:
        raise Misconfigured(
            f"[runtimes.{name}] python = {runtime.python!r} cannot be executed by {account.name}, who runs the jobs: "
            f"{wall} is in the way"
        )
    for target, source in runtime.mounts.items():
        if not Path(source).is_dir() or not target.startswith("/"):
            raise Misconfigured(
                f"[runtimes.{name}] mounts: {target} = {source!r} must be a path and a directory here"
            )


def _is_script(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        # Not ours to read: whether the job's user may is looked at next.
        return False
