"""How long to wait before a process that keeps ending is started again."""

import time
from collections.abc import Callable

_STABLE_SECONDS = 5.0
"""After a run of this length the pauses start over."""
_FIRST, _LONGEST = 0.05, 5.0


class Backoff:
    """No pause after the first end. The pause doubles with each further end that comes soon after a start."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started_at = clock()
        self._pause = 0.0

    def started(self) -> None:
        self._started_at = self._clock()

    def ended(self) -> float:
        """Returns the seconds to wait before the next start."""
        if self._clock() - self._started_at > _STABLE_SECONDS:
            self._pause = 0.0
        pause = self._pause
        self._pause = min(max(_FIRST, 2 * pause), _LONGEST)
        return pause
