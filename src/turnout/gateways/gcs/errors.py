"""Our errors in the format of the JSON API: `{"error": {"code", "message", "errors": [...]}}`."""

import errno
import logging

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout import errors
from turnout.service import calls
from turnout.storage import KeyGone
from turnout.storage.streams import RangeNotSatisfiable

log = logging.getLogger(__name__)


class Precondition(errors.TurnoutError):
    """An `if…Match` condition of the request is not met."""


class Gone(errors.TurnoutError):
    """An upload session that was cancelled."""


_RESPONSES: dict[type[errors.TurnoutError], tuple[int, str]] = {
    RangeNotSatisfiable: (416, "requestedRangeNotSatisfiable"),
    Precondition: (412, "conditionNotMet"),
    Gone: (410, "gone"),
    KeyGone: (400, "failedPrecondition"),
    errors.Invalid: (400, "invalid"),
    errors.TooLarge: (413, "uploadTooLarge"),
    errors.Expired: (401, "authError"),
    # On 401, Google's clients get a new token and do not show the message. Here a new token would not help.
    errors.Unauthenticated: (403, "forbidden"),
    errors.Denied: (403, "forbidden"),
    errors.NotFound: (404, "notFound"),
    errors.AlreadyExists: (409, "conflict"),
    errors.WrongState: (409, "conflict"),
    errors.Unsupported: (400, "notSupported"),  # gcloud retries every 5xx
    errors.Busy: (429, "rateLimitExceeded"),
    errors.TimedOut: (503, "backendError"),
    errors.NotStored: (503, "backendError"),
    errors.Unavailable: (503, "backendError"),
    errors.Misconfigured: (500, "internalError"),
}


def response(error: errors.TurnoutError) -> Response:
    status, reason = next(
        (found for kind, found in _RESPONSES.items() if isinstance(error, kind)), (500, "internalError")
    )
    return _response(status, reason, error.message)


def unexpected(request: Request, error: Exception) -> Response:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _response(507, "quotaExceeded", "the disk of the buckets is full")
    log.error("%s %s", request.method, request.url.path, exc_info=error)
    return _response(500, "internalError", "the service had an internal error; its log has the details")


def _response(status: int, reason: str, message: str) -> Response:
    calls.refused(reason)
    item = {"message": message, "domain": "global", "reason": reason}
    body = msgspec.json.encode({"error": {"code": status, "message": message, "errors": [item]}})
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return Response(body, status, headers, "application/json")
