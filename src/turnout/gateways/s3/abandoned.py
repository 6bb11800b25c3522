"""Removes abandoned uploads. Imports nothing of this package, which is loaded only if S3 is enabled."""

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path


def clear(uploads: Callable[[], Path], before: float, dry: bool) -> tuple[int, int]:
    """Removes uploads without new parts since `before`. Returns their number and bytes. `dry`: only counts."""
    count = size = 0
    for directory in uploads().glob("s3-*"):
        with contextlib.suppress(OSError):
            if directory.stat().st_mtime < before:
                count += 1
                size += sum(entry.stat().st_size for entry in os.scandir(directory))
                if not dry:
                    shutil.rmtree(directory, ignore_errors=True)
    return count, size
