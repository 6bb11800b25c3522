"""JSON responses."""

import msgspec
from starlette.responses import Response

from turnout.dialects.vertex import errors
from turnout.errors import TurnoutError
from turnout.service import calls

_encode = msgspec.json.Encoder().encode


def json(data: object, status: int = 200) -> Response:
    return Response(_encode(data), status, media_type="application/json; charset=UTF-8")


def empty() -> Response:
    """google.protobuf.Empty."""
    return json({})


def error(error: TurnoutError) -> Response:
    response = errors.error_response(error)
    calls.refused(response.status)
    return json(response.body, response.http)
