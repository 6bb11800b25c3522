"""Calls of the kernel that Python does not have."""

from __future__ import annotations

import ctypes

# PyDLL keeps the interpreter lock, so that it may be called in a child between fork and exec.
_libc = ctypes.PyDLL(None, use_errno=True)
_prctl = _libc.prctl
_PDEATHSIG, _DUMPABLE, _SUBREAPER = 1, 4, 36
_KEEP_SIZE, _PUNCH_HOLE = 1, 2


def die_with_parent(number: int) -> None:
    """Sends this signal to this process when the thread that started it ends."""
    _prctl(_PDEATHSIG, number, 0, 0, 0)


def adopt_orphans() -> None:
    _prctl(_SUBREAPER, 1, 0, 0, 0)


def hide() -> None:
    """Other processes of the same user can neither read the memory of this process nor trace it."""
    _prctl(_DUMPABLE, 0, 0, 0, 0)


def punch_hole(fd: int, start: int, size: int) -> bool:
    """Gives disk space back. False: the file system cannot."""
    fallocate = getattr(_libc, "fallocate", None)
    if fallocate is None or size <= 0:
        return False
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, start, size) == 0
