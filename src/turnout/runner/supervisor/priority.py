"""The supervisor's own scheduling priority.

Jobs keep every core busy. A supervisor that waits for its turn behind them starts the next job late and notices ends
late. It needs little CPU time, so it may preempt them. Its children do not inherit this.
"""

import contextlib
import ctypes
import os
import struct

_NICE = -10
_SLICE = 100_000
"""Time slice in nanoseconds: the scheduler prefers processes with short slices (Linux 6.12 on; no effect before that).
"""

_SET_ATTRIBUTES = {"x86_64": 314, "aarch64": 274}
_RESET_ON_FORK = 1


def raise_own() -> None:
    """Only root may raise its priority. A supervisor that was started with a nice value keeps it."""
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    if nice:
        return
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
        nice = _NICE
    # struct sched_attr: size, policy, flags, nice value, static priority, slice, and two for other policies
    attributes = struct.pack("IIQiIQQQ", 48, os.SCHED_OTHER, _RESET_ON_FORK, nice, 0, _SLICE, 0, 0)
    if number := _SET_ATTRIBUTES.get(os.uname().machine):
        ctypes.CDLL(None).syscall(number, 0, attributes, 0)
