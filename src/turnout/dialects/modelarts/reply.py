"""What goes back: always JSON in UTF-8, because the clients guess wrongly without it."""

from collections.abc import Mapping

import msgspec
from starlette.responses import Response

_encode = msgspec.json.Encoder().encode


def json(data: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(_encode(data), status, headers, media_type="application/json")


def nothing() -> Response:
    """204: done, or not ready yet."""
    return Response(status_code=204)
