"""Copies of the runner in a directory that nodes share. Several services, also of other versions, may use one."""

import contextlib
import re
import shutil
import time
from pathlib import Path

KEPT_SECONDS = 60 * 86400.0
"""A copy that no service has used for so long is removed. Nodes that want it nevertheless fetch it."""
_USED_SECONDS = 86400.0
"""How often a use is noted, as the time of the file."""
_OURS = re.compile(r"runner-[0-9a-f]{64}\.pyz|\.runner-[0-9a-f]{64}\.pyz\.\d+")


def place(source: Path, target: Path) -> None:
    """Copies the runner, if it is not there, and removes old ones. Raises OSError if it cannot be copied."""
    try:
        used = target.stat().st_mtime
    except FileNotFoundError:
        _copy(source, target)
    else:
        if time.time() - used < _USED_SECONDS:
            return
        with contextlib.suppress(OSError):  # it may be somebody else's, who notes the use
            target.touch()
    _remove_old(target)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{time.time_ns()}")
    try:
        shutil.copyfile(source, temporary)
        temporary.chmod(0o644)
        temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_old(kept: Path) -> None:
    """Removes only files that a service has put there: the directory may have others."""
    oldest = time.time() - KEPT_SECONDS
    with contextlib.suppress(OSError):
        for path in kept.parent.iterdir():
            with contextlib.suppress(OSError):
                if path != kept and _OURS.fullmatch(path.name) and path.lstat().st_mtime < oldest:
                    path.unlink()
