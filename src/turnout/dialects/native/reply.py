"""Responses of the native API."""

import msgspec
from starlette.responses import Response


def json(body: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")
