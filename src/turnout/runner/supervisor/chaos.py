"""Named points at which a test kills the supervisor, as `turnout.chaos` does for the service."""

import os
import signal

_kill_at = ""


def set_kill_point(name: str) -> None:
    global _kill_at
    _kill_at = name


def kill_point(name: str) -> None:
    if name == _kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
