"""`runner.pyz`: the runner as one file that every Python from 3.8 on can run.

It contains `modules.zip`: modules that programs import, on every Python from 3.7 on.
"""

import hashlib
import io
import os
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

from turnout.runner.targets import MODULES_ZIP

SOURCES = Path(__file__).parent / "node"
MODULES = Path(__file__).parent / "modules"
_PACKAGE = "runner"
_FIRST_LINE = b"#!/usr/bin/env python3\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)
# It is read by Pythons that are too old for the package, so it uses no syntax that they do not know.
_MAIN = b"""\
import sys

if sys.version_info < (3, 8):
    found = sys.version.split()[0]
    sys.exit("turnout runner: Python 3.8 or newer is needed; this is %s (%s)" % (found, sys.executable))

from runner.__main__ import run

run()
"""


def build(directory: Path) -> tuple[Path, str]:
    """Writes `runner-<sha256>.pyz` into the directory, unless it is there, and returns its path and SHA-256.

    The same sources always give the same bytes. Raises OSError.
    """
    data = _archive()
    digest = hashlib.sha256(data).hexdigest()
    path = directory / f"runner-{digest}.pyz"
    with suppress(FileNotFoundError):
        if path.read_bytes() == data:
            return path, digest
    directory.mkdir(parents=True, exist_ok=True)
    fd, temporary = tempfile.mkstemp(prefix="runner-", suffix=".new", dir=directory)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.chmod(temporary, 0o644)  # nodes may read it from a shared directory, as another user
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path, digest


def remove_others(directory: Path, kept: set[str]) -> None:
    """Removes the runners of earlier versions but those with these digests, and what a killed `build` left."""
    for path in directory.glob("runner-*"):
        if path.name not in {f"runner-{digest}.pyz" for digest in kept}:
            path.unlink(missing_ok=True)


def modules_zip() -> bytes:
    return _zip(_sources(MODULES, ""))


def _archive() -> bytes:
    files = {"__main__.py": _MAIN, f"{_PACKAGE}/{MODULES_ZIP}": modules_zip()}
    return _zip(files | _sources(SOURCES, f"{_PACKAGE}/"), _FIRST_LINE)


def _sources(directory: Path, prefix: str) -> dict[str, bytes]:
    return {
        f"{prefix}{source.relative_to(directory).as_posix()}": source.read_bytes()
        for source in directory.rglob("*.py")
    }


def _zip(files: dict[str, bytes], first_line: bytes = b"") -> bytes:
    target = io.BytesIO()
    target.write(first_line)
    # Not compressed: other versions of zlib would give other bytes.
    with zipfile.ZipFile(target, "a", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            archive.writestr(entry, data)
    return target.getvalue()
