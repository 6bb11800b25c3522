"""Ray in an environment of its own, outside of the clone, made once and kept: it is no dependency of Turnout."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "2.60.0"
TIMEOUT = 900


def installed() -> Path:
    """The interpreter that has Ray. Installs it at the first call."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    directory = _cache() / f"ray-{VERSION}-python-{python}"
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "complete").exists():
            shutil.rmtree(directory, ignore_errors=True)
            _install(directory)
            (directory / "complete").touch()
    return directory / "bin/python"


def _cache() -> Path:
    """HOME of the tests may be new, so that nothing is there."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "turnout-tests"


def _install(directory: Path) -> None:
    # Some systems' Python has no ensurepip; that of the tests has pip.
    for command in (
        [sys.executable, "-m", "venv", str(directory)],
        [str(directory / "bin/python"), "-m", "pip", "--disable-pip-version-check", "--quiet", "install",
         "--only-binary", ":all:", f"ray=={VERSION}"],
    ):  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
        assert done.returncode == 0, f"{command}: {done.stderr}"


if __name__ == "__main__":
    installed()
