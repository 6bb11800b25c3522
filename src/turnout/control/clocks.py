"""The clocks of the controller. The wall clock is `time.time_ns`."""

import time


def steady_ns() -> int:
    """Nanoseconds since boot, including suspend. Setting the wall clock does not move it."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
