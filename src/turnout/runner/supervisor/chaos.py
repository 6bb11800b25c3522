"""Named points at which a test has the keeper killed, as `turnout.chaos` does for the service."""

import os
import signal

_kill_at = ""


def prepare(name: str) -> None:
    global _kill_at
    _kill_at = name


def point(name: str) -> None:
    if name == _kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
