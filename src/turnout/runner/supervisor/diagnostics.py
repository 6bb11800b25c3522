"""The supervisor's own log. A message is lost if the disk is full."""

import contextlib
import os
import traceback
from collections.abc import Callable


def log_message(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, (text + "\n").encode(errors="replace"))


def run_safely(call: Callable[[], None]) -> bool:
    """Logs an exception instead of raising it, so that a failure of one replica does not affect the others. False if it
    failed.
    """
    try:
        call()
    except Exception:  # noqa: BLE001
        log_message(traceback.format_exc())
        return False
    return True


class Outage:
    """Something that fails for a while. It is logged when it begins and when it is over, not at each attempt."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._why = ""
        self.active = False

    def failed(self, error: OSError) -> None:
        if not self.active:
            self._why = f"{self._what}: {error}"
            log_message(f"{self._why}; it will be retried")
        self.active = True

    def recovered(self) -> None:
        if self.active:
            # The reason again, because the first message may have been lost on the same full disk.
            log_message(f"{self._why}; it works again")
        self.active = False
