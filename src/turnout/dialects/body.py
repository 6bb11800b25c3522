"""A request's body, as every dialect reads it: no larger and no later than it may be."""

import asyncio
from collections.abc import Mapping

from starlette.types import Receive

from turnout.errors import Invalid, TooLarge

BODY_SECONDS = 60
TOO_LARGE = "The request is too large: the body may have {limit} bytes."


async def read_body(
    headers: Mapping[bytes, bytes],
    receive: Receive,
    limit: int,
    *,
    late: str = "",
    too_large: str = TOO_LARGE,
) -> bytes | None:
    """All of it, or an error as soon as it is too large: the rest is never kept. None: the client has gone.

    `late` is the dialect's code for a body that takes too long, `too_large` its words for one that is too long.
    """
    declared = headers.get(b"content-length", b"0")
    if len(declared) > 19 or int(declared) > limit:
        raise TooLarge(too_large.format(limit=limit))
    parts: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                parts.append(message.get("body", b""))
                size, more = size + len(parts[-1]), message.get("more_body", False)
                if size > limit:
                    raise TooLarge(too_large.format(limit=limit))
    except TimeoutError:
        raise Invalid(f"The body did not arrive within {BODY_SECONDS} s.", code=late) from None
    return b"".join(parts)
