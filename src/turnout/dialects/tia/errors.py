"""Our errors as TI-A's codes. An action returns only codes that its documentation lists."""

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
TOO_MANY = "RequestLimitExceeded"
UNKNOWN_ACTION = "InvalidAction"
UNKNOWN_VERSION = "NoSuchVersion"
BAD_METHOD = "UnsupportedProtocol"
BAD_REQUEST = "InvalidRequest"
UNSUPPORTED = "UnsupportedOperation"

BAD_AUTHORIZATION = "AuthFailure.InvalidAuthorization"
UNKNOWN_KEY = "AuthFailure.SecretIdNotFound"
EXPIRED = "AuthFailure.SignatureExpire"
BAD_SIGNATURE = "AuthFailure.SignatureFailure"

ACTION_CODES: dict[str, frozenset[str]] = {
    "CreateJob": frozenset({EXISTS, TIMED_OUT, INTERNAL, INVALID, UNAVAILABLE, UNAUTHORIZED, OLD_VERSION}),
    "DescribeJob": frozenset(
        {TIMED_OUT, INTERNAL, INVALID, NOT_FOUND, UNAVAILABLE, UNAUTHORIZED, OLD_VERSION}
    ),
    "ListJobs": frozenset({TIMED_OUT, INTERNAL, INVALID, NOT_FOUND, UNAUTHORIZED, OLD_VERSION}),
    "DeleteJob": frozenset({INTERNAL, INVALID, NOT_FOUND}),
    "QueryLogs": frozenset({TIMED_OUT, INTERNAL, INVALID, NOT_FOUND, UNAVAILABLE, UNAUTHORIZED, OLD_VERSION}),
}
"""The error table of each action's page."""

COMMON_CODES = frozenset(
    {
        UNKNOWN_PARAMETER,
        MISSING_PARAMETER,
        TOO_LARGE,
        TOO_MANY,
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
"""The codes of all Tencent APIs, about the request itself."""

_CODES: dict[type[TurnoutError], tuple[str, ...]] = {
    errors.Invalid: (INVALID,),
    errors.TooLarge: (TOO_LARGE,),
    errors.Unauthenticated: (BAD_AUTHORIZATION,),
    errors.Denied: (UNAUTHORIZED, NOT_FOUND),
    errors.NotFound: (NOT_FOUND, UNAVAILABLE),
    errors.AlreadyExists: (EXISTS, INVALID),
    errors.WrongState: (UNAVAILABLE, INVALID),
    errors.Unavailable: (UNAVAILABLE, NOT_FOUND),
    errors.OverQuota: (UNAVAILABLE,),
    errors.Unsupported: (INVALID,),
    errors.Busy: (TOO_MANY,),
    errors.TimedOut: (TIMED_OUT, INTERNAL),
    errors.NotStored: (INTERNAL,),
    errors.Misconfigured: (INTERNAL,),
    TurnoutError: (INTERNAL,),
}
"""In the order of preference: an action returns the first code that its table has."""


def code_of(error: TurnoutError, action: str) -> str:
    """`action` is empty if the request names no valid action."""
    allowed = ACTION_CODES.get(action, frozenset()) | COMMON_CODES
    if error.code in allowed:
        return error.code
    mapped = next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES)
    if not action:
        return mapped[0]
    return next((code for code in mapped if code in allowed), INTERNAL)


def missing(field: str) -> errors.Invalid:
    return errors.Invalid(f"The required parameter {field} is missing.", field=field, code=MISSING_PARAMETER)


def unknown(field: str, hint: str = "") -> errors.Invalid:
    message = f"This action has no parameter {field!r}{hint or '.'}"
    return errors.Invalid(message, field=field, code=UNKNOWN_PARAMETER)
