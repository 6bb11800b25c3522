"""Our errors as the JSON API has them: `{"error": {"code", "message", "errors": [...]}}`."""

import errno
import logging

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout import errors
from turnout.storage import KeyGone
from turnout.storage.streams import Unsatisfiable

log = logging.getLogger(__name__)


class Precondition(errors.TurnoutError):
    """An `if…Match` that does not hold."""


class Gone(errors.TurnoutError):
    """An upload session that was given up."""


_ANSWERS: dict[type[errors.TurnoutError], tuple[int, str]] = {
    Unsatisfiable: (416, "requestedRangeNotSatisfiable"),
    Precondition: (412, "conditionNotMet"),
    Gone: (410, "gone"),
    KeyGone: (400, "failedPrecondition"),
    errors.Invalid: (400, "invalid"),
    errors.TooLarge: (413, "uploadTooLarge"),
    errors.Unauthenticated: (401, "required"),
    errors.Denied: (403, "forbidden"),
    errors.NotFound: (404, "notFound"),
    errors.AlreadyExists: (409, "conflict"),
    errors.WrongState: (409, "conflict"),
    errors.Unsupported: (501, "notImplemented"),
    errors.TimedOut: (503, "backendError"),
    errors.Unavailable: (503, "backendError"),
    errors.Misconfigured: (500, "internalError"),
}


def answer(error: errors.TurnoutError) -> Response:
    status, reason = next(
        (found for kind, found in _ANSWERS.items() if isinstance(error, kind)), (500, "internalError")
    )
    return _answer(status, reason, error.message)


def unexpected(request: Request, error: Exception) -> Response:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _answer(507, "quotaExceeded", "the disk that the buckets are on is full")
    log.error("%s %s", request.method, request.url.path, exc_info=error)
    return _answer(500, "internalError", "something went wrong inside the service; its log has the details")


def _answer(status: int, reason: str, message: str) -> Response:
    one = {"message": message, "domain": "global", "reason": reason}
    body = msgspec.json.encode({"error": {"code": status, "message": message, "errors": [one]}})
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return Response(body, status, headers, "application/json")
