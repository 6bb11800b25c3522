"""Responses. The content type is always set, because the SDKs guess a wrong one without it."""

from collections.abc import Mapping

import msgspec
from starlette.responses import Response

_encode = msgspec.json.Encoder().encode


def json(data: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(_encode(data), status, headers, media_type="application/json")


def no_content() -> Response:
    """204: the call is done, or the answer is not ready yet."""
    return Response(status_code=204)
