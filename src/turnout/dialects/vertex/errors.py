"""Our errors as Google's: HTTP status, google.rpc code and response body."""

from typing import Any, NamedTuple

from turnout import errors
from turnout.errors import TurnoutError

DOMAIN = "aiplatform.googleapis.com"

INVALID_ARGUMENT = "INVALID_ARGUMENT"
FAILED_PRECONDITION = "FAILED_PRECONDITION"
OUT_OF_RANGE = "OUT_OF_RANGE"
UNAUTHENTICATED = "UNAUTHENTICATED"
PERMISSION_DENIED = "PERMISSION_DENIED"
NOT_FOUND = "NOT_FOUND"
ALREADY_EXISTS = "ALREADY_EXISTS"
ABORTED = "ABORTED"
RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
CANCELLED = "CANCELLED"
INTERNAL = "INTERNAL"
UNIMPLEMENTED = "UNIMPLEMENTED"
UNAVAILABLE = "UNAVAILABLE"
DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"


class Code(NamedTuple):
    number: int
    """In google.rpc.Code, for gRPC and for the `error` of jobs and operations."""
    http: int


CODES: dict[str, Code] = {
    CANCELLED: Code(1, 499),
    INVALID_ARGUMENT: Code(3, 400),
    DEADLINE_EXCEEDED: Code(4, 504),
    NOT_FOUND: Code(5, 404),
    ALREADY_EXISTS: Code(6, 409),
    PERMISSION_DENIED: Code(7, 403),
    RESOURCE_EXHAUSTED: Code(8, 429),
    FAILED_PRECONDITION: Code(9, 400),
    ABORTED: Code(10, 409),
    OUT_OF_RANGE: Code(11, 400),
    UNIMPLEMENTED: Code(12, 501),
    INTERNAL: Code(13, 500),
    UNAVAILABLE: Code(14, 503),
    UNAUTHENTICATED: Code(16, 401),
}

_STATUSES: dict[type[TurnoutError], tuple[str, str]] = {
    errors.Invalid: (INVALID_ARGUMENT, "INVALID_ARGUMENT"),
    errors.TooLarge: (INVALID_ARGUMENT, "REQUEST_TOO_LARGE"),
    # On a 401 Google's clients look for another token and hide the message; they show the message of a 403.
    errors.Unauthenticated: (PERMISSION_DENIED, "ACCESS_TOKEN_INVALID"),
    errors.Denied: (PERMISSION_DENIED, "IAM_PERMISSION_DENIED"),
    errors.NotFound: (NOT_FOUND, "RESOURCE_NOT_FOUND"),
    errors.AlreadyExists: (ALREADY_EXISTS, "RESOURCE_ALREADY_EXISTS"),
    errors.WrongState: (FAILED_PRECONDITION, "FAILED_PRECONDITION"),
    errors.Unavailable: (RESOURCE_EXHAUSTED, "RESOURCES_INSUFFICIENT"),
    errors.OverQuota: (RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED"),
    errors.Unsupported: (UNIMPLEMENTED, "NOT_SUPPORTED_HERE"),
    errors.Busy: (RESOURCE_EXHAUSTED, "RATE_LIMIT_EXCEEDED"),
    errors.TimedOut: (DEADLINE_EXCEEDED, "TIMED_OUT"),
    errors.NotStored: (UNAVAILABLE, "UNAVAILABLE"),
    errors.Misconfigured: (INTERNAL, "MISCONFIGURED"),
    TurnoutError: (INTERNAL, "INTERNAL"),
}
"""The status, and the reason in its details."""


class RenderedError(NamedTuple):
    http: int
    status: str
    body: dict[str, Any]


def error_response(error: TurnoutError) -> RenderedError:
    """If `error.code` is a google.rpc code, it replaces the code of the error's class."""
    status, reason = next(_STATUSES[kind] for kind in type(error).__mro__ if kind in _STATUSES)
    if error.code in CODES:
        status = reason = error.code
    http = CODES[status].http
    error_document = {
        "code": http,
        "message": error.message,
        "status": status,
        "details": _details(error, reason),
    }
    return RenderedError(http, status, {"error": error_document})


def _details(error: TurnoutError, reason: str) -> list[dict[str, Any]]:
    """Only google.rpc types: a client cannot decode an error that has other types."""
    metadata = {"service": DOMAIN} | ({"field": error.field} if error.field else {})
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": DOMAIN,
        "metadata": metadata,
    }
    if not error.field or not isinstance(error, errors.Invalid):
        return [info]
    violation = {"field": error.field, "description": error.message}
    return [info, {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]}]
