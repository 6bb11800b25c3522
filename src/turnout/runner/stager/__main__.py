"""`python -m turnout.runner.stager`"""

import asyncio
import ctypes
import os

import google_crc32c  # noqa: F401 - imported before the process gives up the rights to read it
import obstore.store  # noqa: F401

from turnout.child_processes.bootstrap import drop_privileges, read_setup
from turnout.runner.stager.messages import StagerSetup
from turnout.runner.stager.stager import Stager

_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -8, -3, -1
_C = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    # A heap for each thread would take a third more memory.
    _C.mallopt(_M_ARENA_MAX, 2)
    # Buffers are freed at once and needed again soon: keep their memory instead of returning it to the kernel.
    _C.mallopt(_M_MMAP_THRESHOLD, 32 << 20)
    _C.mallopt(_M_TRIM_THRESHOLD, 64 << 20)
    setup = read_setup(StagerSetup)
    drop_privileges(setup)
    asyncio.run(Stager(setup).serve())
    # A normal exit would wait for threads that wait for an unresponsive store.
    os._exit(0)


if __name__ == "__main__":
    main()
