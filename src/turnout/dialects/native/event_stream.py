"""Answers that are streamed as server-sent events, because the whole takes long."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.responses import StreamingResponse

from turnout.errors import TurnoutError

_KEEP_ALIVE_SECONDS = 15
"""After this time a comment is sent, so that the client does not close the connection."""


async def stream(kind: str, results: AsyncIterator[object]) -> StreamingResponse:
    """An event of this kind for each result, then `end`. The work ends if the client disconnects.

    An error before the first result is raised, so that it becomes an HTTP status.
    """
    first = await anext(results, None)
    return StreamingResponse(
        _events(kind, first, results), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
    )


async def _events(kind: str, first: object, others: AsyncIterator[object]) -> AsyncIterator[bytes]:
    if first is not None:
        yield _event(kind, first)
    waiting = asyncio.ensure_future(anext(others, None))
    try:
        while True:
            done, _ = await asyncio.wait([waiting], timeout=_KEEP_ALIVE_SECONDS)
            if not done:
                yield b": keep-alive\n\n"
                continue
            result = waiting.result()
            if result is None:
                break
            yield _event(kind, result)
            waiting = asyncio.ensure_future(anext(others, None))
    except TurnoutError as error:
        yield _event("error", {"message": error.message})
        return
    finally:
        waiting.cancel()
    yield _event("end", {})


def _event(kind: str, data: object) -> bytes:
    return f"event: {kind}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"
