"""The Python interpreters of this machine, and the shims `python`, `python3`, … that start one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec

from turnout import config
from turnout.engines.local.environments.definition import Interpreter
from turnout.engines.local.users.account import EXECUTE, Account
from turnout.errors import Misconfigured
from turnout.runner.archive import modules_zip
from turnout.runner.plan import PYTHONS
from turnout.runner.targets import MODULES_ZIP

_PRINT_VERSION = "import json, sys; print(json.dumps([sys.version.split()[0], sys.prefix, sys.base_prefix]))"
_SHIM = '#!/bin/sh\nexec "{python}" "$@"\n'


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


def installed(account: Account) -> dict[str, str]:
    """The interpreters that jobs may execute, by version: `3.12` → `/usr/bin/python3.12`.

    Shims such as pyenv's are scripts: they need variables that a job does not have.
    """
    found: dict[str, str] = {}
    for directory in config.python_directories():
        try:
            names = sorted(os.listdir(directory))
        except OSError:
            continue
        for name in names:
            match, path = re.fullmatch(r"python(3\.\d+)", name), Path(directory, name)
            if not match or match[1] in found or not path.is_file() or _is_script(path):
                continue
            if account.blocked(path, EXECUTE) is None:
                found[match[1]] = str(path)
    return found


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
    scripts = os.path.join(prefix, "bin") if prefix != base else ""
    return Interpreter(python, version, tuple(path for path in prefixes if path != "/"), scripts)


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
    _write_modules(directory / MODULES_ZIP)


def _write_modules(path: Path) -> None:
    data = modules_zip()
    if not path.exists() or path.read_bytes() != data:
        fresh = path.with_suffix(".new")
        fresh.write_bytes(data)
        fresh.chmod(0o644)
        fresh.rename(path)


def _is_script(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        # The service cannot read it. Whether the job's user can is checked next.
        return False
