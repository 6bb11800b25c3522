"""What went wrong, as gRPC tells it: a google.rpc.Status, which its clients make their exceptions from."""

from typing import Any
from urllib.parse import quote

import msgspec
from google.protobuf import any_pb2, json_format

# The details of an answer can be read only if their messages are known.
from google.rpc import code_pb2, error_details_pb2, status_pb2

from turnout.doors.grpc.rest import Unreachable
from turnout.doors.grpc.transcode import NotUnderstood
from turnout.errors import Denied, Invalid, TurnoutError

Status = status_pb2.Status

_DOMAIN = "aiplatform.googleapis.com"
_ROOM = 3000
"""Bytes for the text, and as many for the details: clients refuse answers with more than 8 KiB of metadata."""

_CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
"""For answers that do not name a code themselves."""

_OURS: dict[type[TurnoutError], str] = {
    Denied: "PERMISSION_DENIED",
    Invalid: "INVALID_ARGUMENT",
    NotUnderstood: "INTERNAL",
    Unreachable: "UNAVAILABLE",
}


def of_error(error: TurnoutError) -> Status:
    """What went wrong at the door itself."""
    code = _OURS.get(type(error), "INTERNAL")
    return status(code, error.message, code)


def of_answer(http: int, body: bytes) -> Status:
    """What an answer with an error says; one that is not in Google's form is the message as it is."""
    try:
        told = msgspec.json.decode(body)["error"]
        code, message, details = told["status"], str(told["message"]), told.get("details")
        number = code_pb2.Code.Value(code)
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError, KeyError, TypeError, ValueError):
        text = body.decode(errors="replace").strip() or f"the service answered with HTTP {http}"
        return status(_CODES.get(http, "UNKNOWN"), text)
    return _small(Status(code=number, message=message, details=_packed(details)))


def status(code: str, message: str, reason: str = "") -> Status:
    """`reason` is for programs: what `exc.reason` will be."""
    found = Status(code=code_pb2.Code.Value(code), message=message)
    if reason:
        found.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason, domain=_DOMAIN))
    return _small(found)


def _packed(details: Any) -> list[any_pb2.Any]:
    packed: list[any_pb2.Any] = []
    for one in details if isinstance(details, list) else ():
        try:
            packed.append(json_format.ParseDict(one, any_pb2.Any(), ignore_unknown_fields=True))
        except (json_format.ParseError, AttributeError, TypeError):
            continue  # not known here: the rest is worth having
    return packed


def _small(found: Status) -> Status:
    """The text is sent percent-encoded, where a letter may take nine bytes, and again in the details."""
    text = found.message
    while len(quote(text)) > _ROOM:
        text = text[: min(len(text) * _ROOM // len(quote(text)), len(text) - 1)]
    found.message = text if text == found.message else text.rstrip() + " …"
    while found.details and found.ByteSize() > _ROOM:
        del found.details[-1]
    return found
