"""Retries of requests to an unavailable store."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from turnout.errors import TimedOut, TurnoutError, Unavailable
from turnout.storage.remote.errors import explain

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_BROKEN = 3

T = TypeVar("T")


class Corrupt(Exception):
    """The data does not match the store's metadata; it is fetched again, a few times."""


class Permanent(Exception):
    """An error that a retry cannot fix."""


class RetryPolicy:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def run(
        self, attempt: Callable[[], Awaitable[T]], url: str, progress: Callable[[], int] = lambda: 0
    ) -> T:
        """Retry until success, a permanent error, or `seconds` of failures. Raises TurnoutError.

        `progress` measures what survives a failed attempt; any progress restarts the time limit.
        """
        failing_since = 0.0
        pause, broken, so_far = _FIRST_PAUSE, 0, progress()
        while True:
            began = time.monotonic()
            try:
                return await attempt()
            except (TurnoutError, OSError) as error:
                if isinstance(error, TurnoutError) or error.errno is not None:
                    raise  # Turnout's error, or this machine's: obstore's FileNotFoundError has no errno
                found = explain(error, url)
            except Permanent:
                raise
            except Corrupt as error:
                broken += 1
                if broken == _BROKEN:
                    raise Unavailable(f"{error}, {_BROKEN} times") from None
                continue
            except Exception as error:  # noqa: BLE001 - obstore's errors have no other common base class
                found = explain(error, url)
            if not found.retryable:
                raise found.error from None
            now = time.monotonic()
            if not failing_since or progress() != so_far:
                # obstore retries by itself for half of our time; a longer attempt was not failing all the time.
                failing_since = max(began, now - self.seconds / 2)
                pause, so_far = _FIRST_PAUSE, progress()
            if now - failing_since + pause > self.seconds:
                raise TimedOut(f"{found.error.message}; tried for {now - failing_since:.0f} s")
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(pause * 2, _LONGEST_PAUSE)
