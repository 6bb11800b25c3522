"""Clears away what is left on disk of jobs that are gone, and logs that have had their time."""

import asyncio
import logging
import time
from collections.abc import Mapping

from turnout.engines import Engine
from turnout.errors import TurnoutError
from turnout.store import Store

log = logging.getLogger(__name__)

_DAY = 86_400
_AT_ONCE = 500


async def keep_swept(store: Store, engines: Mapping[str, Engine], log_days: float) -> None:
    """Once now and once a day."""
    while True:
        oldest = time.time_ns() - int(log_days * _DAY * 1e9)
        for name, engine in engines.items():
            try:
                await sweep(store, engine, oldest)
            except TurnoutError as error:
                log.warning("could not clear away old attempts of engine %s: %s", name, error.message)
        await asyncio.sleep(_DAY)


async def sweep(store: Store, engine: Engine, oldest: int) -> int:
    """Remove the attempts of jobs that are unknown, deleted, or ended before `oldest`; how many they were."""
    stored = await engine.stored()
    removed = 0
    for first in range(0, len(stored), _AT_ONCE):
        gone = await store.finished_attempts(stored[first : first + _AT_ONCE], oldest)
        if gone:
            await engine.remove(gone)
            removed += len(gone)
    return removed
