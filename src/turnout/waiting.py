"""Waiting for the first of several events."""

import asyncio


async def wait_any(*events: asyncio.Event, timeout: float | None = None) -> None:
    """Return when one of the events is set, or after `timeout` seconds."""
    if any(event.is_set() for event in events):
        return
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
