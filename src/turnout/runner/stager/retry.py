"""Asking an ailing store again."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from turnout.errors import TimedOut, TurnoutError, Unavailable
from turnout.storage.remote_trouble import trouble

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_BROKEN = 3

T = TypeVar("T")


class Broken(Exception):
    """What came is not what the store says it has: it is fetched again, a few times."""


class Lasting(Exception):
    """Asking again is of no use."""


class Patience:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def insist(
        self, attempt: Callable[[], Awaitable[T]], url: str, progress: Callable[[], int] = lambda: 0
    ) -> T:
        """Until it works, or fails in a way that lasts, or has failed for so long. Raises TurnoutError.

        `progress`: of what stays when an attempt fails; patience begins anew when there was some.
        """
        failing_since = 0.0
        pause, broken, so_far = _FIRST_PAUSE, 0, progress()
        while True:
            began = time.monotonic()
            try:
                return await attempt()
            except (TurnoutError, OSError) as error:
                if isinstance(error, TurnoutError) or error.errno is not None:
                    raise  # ours, or this machine's; obstore's FileNotFoundError has no number
                found = trouble(error, url)
            except Lasting:
                raise
            except Broken as error:
                broken += 1
                if broken == _BROKEN:
                    raise Unavailable(f"{error}; that is what came {_BROKEN} times") from None
                continue
            except Exception as error:  # noqa: BLE001 - obstore's, which have no common root but this
                found = trouble(error, url)
            if not found.passing:
                raise found.error from None
            now = time.monotonic()
            if not failing_since or progress() != so_far:
                # obstore has its own patience, half of ours; an attempt that lasted longer did not fail all the time.
                failing_since = max(began, now - self.seconds / 2)
                pause, so_far = _FIRST_PAUSE, progress()
            if now - failing_since + pause > self.seconds:
                raise TimedOut(f"{found.error.message}; tried for {now - failing_since:.0f} s")
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(pause * 2, _LONGEST_PAUSE)
