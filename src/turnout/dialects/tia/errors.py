"""Our errors as TI-A's codes, and nothing but what the action's own table allows."""

from turnout import errors
from turnout.errors import TurnoutError

EXISTS = "FailedOperation.AlreadyExists"
TIMED_OUT = "FailedOperation.TimeOut"
INTERNAL = "InternalError"
INVALID = "InvalidParameter"
NOT_FOUND = "ResourceNotFound"
UNAVAILABLE = "ResourceUnavailable"
UNAUTHORIZED = "UnauthorizedOperation"
OLD_VERSION = "UnsupportedOperation.UnsupportedVersion"

UNKNOWN_PARAMETER = "UnknownParameter"
MISSING_PARAMETER = "MissingParameter"
TOO_LARGE = "RequestSizeLimitExceeded"
UNKNOWN_ACTION = "InvalidAction"
UNKNOWN_VERSION = "NoSuchVersion"
BAD_METHOD = "UnsupportedProtocol"
BAD_REQUEST = "InvalidRequest"
UNSUPPORTED = "UnsupportedOperation"

BAD_AUTHORIZATION = "AuthFailure.InvalidAuthorization"
UNKNOWN_KEY = "AuthFailure.SecretIdNotFound"
EXPIRED = "AuthFailure.SignatureExpire"
BAD_SIGNATURE = "AuthFailure.SignatureFailure"

OF_ACTION: dict[str, frozenset[str]] = {
    "CreateJob": frozenset({EXISTS, TIMED_OUT, INTERNAL, INVALID, UNAVAILABLE, UNAUTHORIZED, OLD_VERSION}),
    "DescribeJob": frozenset(
        {TIMED_OUT, INTERNAL, INVALID, NOT_FOUND, UNAVAILABLE, UNAUTHORIZED, OLD_VERSION}
    ),
    "ListJobs": frozenset({TIMED_OUT, INTERNAL, INVALID, NOT_FOUND, UNAUTHORIZED, OLD_VERSION}),
    "DeleteJob": frozenset({INTERNAL, INVALID, NOT_FOUND}),
    "QueryLogs": frozenset({TIMED_OUT, INTERNAL, INVALID, NOT_FOUND, UNAVAILABLE, UNAUTHORIZED, OLD_VERSION}),
}
"""The error table of each action's page."""

OF_ANY_ACTION = frozenset(
    {
        UNKNOWN_PARAMETER,
        MISSING_PARAMETER,
        TOO_LARGE,
        UNKNOWN_ACTION,
        UNKNOWN_VERSION,
        BAD_METHOD,
        BAD_REQUEST,
        UNSUPPORTED,
        BAD_AUTHORIZATION,
        UNKNOWN_KEY,
        EXPIRED,
        BAD_SIGNATURE,
        INTERNAL,
    }
)
"""Tencent-wide codes: about the request, before an action is reached."""

_CODES: dict[type[TurnoutError], tuple[str, ...]] = {
    errors.Invalid: (INVALID,),
    errors.TooLarge: (TOO_LARGE,),
    errors.Unauthenticated: (BAD_AUTHORIZATION,),
    errors.Denied: (UNAUTHORIZED, NOT_FOUND),
    errors.NotFound: (NOT_FOUND, UNAVAILABLE),
    errors.AlreadyExists: (EXISTS, INVALID),
    errors.WrongState: (UNAVAILABLE, INVALID),
    errors.Unavailable: (UNAVAILABLE, NOT_FOUND),
    errors.Unsupported: (INVALID,),
    errors.TimedOut: (TIMED_OUT, INTERNAL),
    errors.Misconfigured: (INTERNAL,),
    TurnoutError: (INTERNAL,),
}
"""Best first: an action answers with the first that its table has."""


def code_of(error: TurnoutError, action: str) -> str:
    """The code to answer with. `action` may be empty while it is not known."""
    allowed = OF_ACTION.get(action, frozenset()) | OF_ANY_ACTION
    if error.code in allowed:
        return error.code
    mapped = next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES)
    if not action:
        return mapped[0]
    return next((code for code in mapped if code in allowed), INTERNAL)


def missing(field: str) -> errors.Invalid:
    return errors.Invalid(f"The required parameter {field} is missing.", field=field, code=MISSING_PARAMETER)


def unknown(field: str, hint: str = "") -> errors.Invalid:
    message = f"The parameter {field!r} is not known to this action{hint or '.'}"
    return errors.Invalid(message, field=field, code=UNKNOWN_PARAMETER)
