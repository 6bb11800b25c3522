"""Our errors as HTTP responses: a status and `{"error": {"code", "message"}}`."""

import logging

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout import errors
from turnout.service import calls

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
    errors.OverQuota: 429,
    errors.Unsupported: 501,
    errors.Busy: 429,
    errors.TimedOut: 503,
    errors.NotStored: 503,
}


def error_response(error: errors.TurnoutError) -> Response:
    name = "Unauthenticated" if isinstance(error, errors.Unauthenticated) else type(error).__name__
    calls.refused(name)
    body = {"error": {"code": name, "message": error.message}}
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
    return Response(msgspec.json.encode(body), status, media_type="application/json")


def internal_error(request: Request, error: Exception) -> Response:
    log.error("%s %s", request.method, request.url.path, exc_info=error)
    return error_response(errors.TurnoutError("internal error; the log of the service has the details"))
