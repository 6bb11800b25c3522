"""Ends long requests when their key is revoked."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from turnout.access.keys import FindsKeys
from turnout.errors import Unauthenticated

T = TypeVar("T")


async def unless_revoked(keys: FindsKeys, key_id: str, work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of `work`. Cancels it and raises Unauthenticated when the key is revoked."""
    task = asyncio.ensure_future(work)
    with keys.watch(key_id) as revoked:
        ending = asyncio.ensure_future(revoked.wait())
        try:
            await asyncio.wait((task, ending), return_when=asyncio.FIRST_COMPLETED)
            if revoked.is_set():
                raise Unauthenticated("the key was revoked")
            return task.result()
        finally:
            task.cancel()
            ending.cancel()
            await asyncio.gather(task, ending, return_exceptions=True)


async def until_revoked(keys: FindsKeys, key_id: str, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yields the stream until the key is revoked."""
    while True:
        try:
            piece = await unless_revoked(keys, key_id, _next(stream))
        except Unauthenticated:
            return
        if piece is None:
            return
        yield piece


async def accepted_until_revoked(
    keys: FindsKeys, key_id: str, body: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    """Yields the body of a request. Raises Unauthenticated between two pieces if the key is revoked."""
    while (piece := await unless_revoked(keys, key_id, _next(body))) is not None:
        yield piece


async def _next(stream: AsyncIterator[bytes]) -> bytes | None:
    return await anext(stream, None)
