"""`runner.pyz`: the runner as one file that every Python from 3.8 on can run."""

import hashlib
import io
import os
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

SOURCES = Path(__file__).parent / "node"
_PACKAGE = "runner"
_FIRST_LINE = b"#!/usr/bin/env python3\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)
# It is read by Pythons that are too old for the package, so it uses no syntax that they do not know.
_MAIN = b"""\
import sys

if sys.version_info < (3, 8):
    found = sys.version.split()[0]
    sys.exit("turnout runner: Python 3.8 or newer is needed; this is %s (%s)" % (found, sys.executable))

import runpy

runpy.run_module("runner", run_name="__main__", alter_sys=False)
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


def _archive() -> bytes:
    files = {"__main__.py": _MAIN}
    for source in SOURCES.rglob("*.py"):
        files[f"{_PACKAGE}/{source.relative_to(SOURCES).as_posix()}"] = source.read_bytes()
    target = io.BytesIO()
    target.write(_FIRST_LINE)
    # Not compressed: other versions of zlib would give other bytes.
    with zipfile.ZipFile(target, "a", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            archive.writestr(entry, data)
    return target.getvalue()
