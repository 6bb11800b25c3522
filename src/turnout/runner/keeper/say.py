"""What the keeper tells people: lines in its own log, which may be on a full disk."""

import contextlib
import os


def say(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, (text + "\n").encode(errors="replace"))


class Outage:
    """Something that fails for a while: said when it begins and when it is over, however often it was tried."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._why = ""
        self.on = False

    def failed(self, error: OSError) -> None:
        if not self.on:
            self._why = f"{self._what}: {error}"
            say(f"{self._why}; it is tried again")
        self.on = True

    def over(self) -> None:
        if self.on:
            # The reason once more: the first line may have been for the same full disk.
            say(f"{self._why}; now it works again")
        self.on = False
