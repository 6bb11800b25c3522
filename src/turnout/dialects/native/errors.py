"""Our errors as HTTP answers: `{"error": {"code", "message"}}` with a fitting status."""

import logging

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout import errors

log = logging.getLogger(__name__)

_STATUS: dict[type[errors.TurnoutError], int] = {
    errors.Invalid: 400,
    errors.TooLarge: 413,
    errors.Unauthenticated: 401,
    errors.Denied: 403,
    errors.NotFound: 404,
    errors.AlreadyExists: 409,
    errors.WrongState: 409,
    errors.Unavailable: 429,
    errors.Unsupported: 501,
    errors.TimedOut: 503,
}


def answer(error: errors.TurnoutError) -> Response:
    body = {"error": {"code": type(error).__name__, "message": error.message}}
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
    return Response(msgspec.json.encode(body), status, media_type="application/json")


def unexpected(request: Request, error: Exception) -> Response:
    log.error("%s %s", request.method, request.url.path, exc_info=error)
    return answer(errors.TurnoutError("something went wrong inside the service; its log has the details"))
