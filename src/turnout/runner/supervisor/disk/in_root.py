"""Opens paths as if a directory were the root directory: no link and no `..` leads out of it."""

import ctypes
import os
import struct

PATH = os.O_PATH | os.O_CLOEXEC

_OPENAT2 = 437
_IN_ROOT, _NO_MAGIC_LINKS = 0x10, 0x02
_libc = ctypes.PyDLL(None, use_errno=True)  # PyDLL: see `clone`


def open_in_root(root: int, path: str, flags: int = PATH) -> int:
    """`root`: the descriptor of the directory. Raises OSError."""
    how = struct.pack("<3Q", flags, 0, _IN_ROOT | _NO_MAGIC_LINKS)
    fd: int = _libc.syscall(_OPENAT2, root, os.fsencode(path), how, ctypes.c_size_t(len(how)))
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), f"{path} in the image")
    return fd
