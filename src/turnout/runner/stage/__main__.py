"""`python -m turnout.runner.stage`"""

import asyncio
import ctypes
import os
import resource
import signal
import sys

import google_crc32c  # noqa: F401 - before the rights to read it are given up, like all that is imported here
import msgspec
import obstore.store  # noqa: F401

from turnout.runner.stage.mover import Mover
from turnout.runner.stage.orders import Hello

_PR_SET_DUMPABLE = 4
_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -8, -3, -1
_C = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    # With a heap for each thread, a third more memory lies about unused.
    _C.mallopt(_M_ARENA_MAX, 2)
    # What came in is let go of at once: its memory is for what comes next, not for the kernel to take and give again.
    _C.mallopt(_M_MMAP_THRESHOLD, 32 << 20)
    _C.mallopt(_M_TRIM_THRESHOLD, 64 << 20)
    # Ends with its input, not with the terminal of whoever started the service.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hello = msgspec.json.decode(_line(), type=Hello)
    _become(hello)
    asyncio.run(Mover(hello).serve())
    # Not by the front door: a thread that waits for a silent store would be waited for, or be cut off in the middle.
    os._exit(0)


def _line() -> bytes:
    """Byte by byte: what follows belongs to the loop."""
    line = b""
    while (byte := os.read(sys.stdin.fileno(), 1)) not in (b"\n", b""):
        line += byte
    return line


def _become(hello: Hello) -> None:
    if hello.uid >= 0:
        os.setgroups([])
        os.setresgid(hello.gid, hello.gid, hello.gid)
        os.setresuid(hello.uid, hello.uid, hello.uid)
    # Jobs may run as the same user: they must not look into a memory that holds credentials.
    _C.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    os.umask(0o022)
    os.chdir("/")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    main()
