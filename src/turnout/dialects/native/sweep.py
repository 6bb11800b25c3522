"""POST `/turnout/v1/sweep`, for root: removes expired data and reports what it removed, by kind."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from turnout.dialects.native.auth import Guard
from turnout.errors import Denied, Invalid, TurnoutError
from turnout.service import Caller, Sweeper, Swept

_KEEP_ALIVE_SECONDS = 15
"""After this time without an event, a comment is sent, so that the client does not close the connection."""


def sweep_routes(sweeper: Sweeper, guarded: Guard) -> list[Route]:
    async def sweep(request: Request, caller: Caller) -> Response:
        if not caller.root:
            raise Denied("only the root key may sweep")
        dry = request.query_params.get("dry_run", "false").lower()
        if dry not in ("true", "false"):
            raise Invalid(f"dry_run must be true or false, not {dry!r}", field="dry_run")
        swept = sweeper.run(dry=dry == "true")
        first = await anext(swept, None)  # an error before the first result becomes an HTTP status
        return StreamingResponse(
            _events(first, swept), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    return [Route("/turnout/v1/sweep", guarded(sweep), methods=["POST"])]


async def _events(first: Swept | None, others: AsyncIterator[Swept]) -> AsyncIterator[bytes]:
    """The sweep ends if the client disconnects."""
    if first:
        yield _event("swept", first)
    waiting = asyncio.ensure_future(anext(others, None))
    try:
        while True:
            done, _ = await asyncio.wait([waiting], timeout=_KEEP_ALIVE_SECONDS)
            if not done:
                yield b": keep-alive\n\n"
                continue
            swept = waiting.result()
            if swept is None:
                break
            yield _event("swept", swept)
            waiting = asyncio.ensure_future(anext(others, None))
    except TurnoutError as error:
        yield _event("error", {"message": error.message})
        return
    finally:
        waiting.cancel()
    yield _event("end", {})


def _event(kind: str, data: object) -> bytes:
    return f"event: {kind}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"
