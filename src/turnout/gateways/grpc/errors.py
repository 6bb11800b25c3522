"""Errors as google.rpc.Status, from which gRPC clients make their exceptions."""

from typing import Any
from urllib.parse import quote

import msgspec
from google.protobuf import any_pb2, json_format

# Importing these messages makes the details of a response readable.
from google.rpc import code_pb2, error_details_pb2, status_pb2

from turnout.errors import Busy, Denied, Invalid, TurnoutError
from turnout.gateways.grpc.rest import ServiceUnreachable
from turnout.gateways.grpc.transcode import BadResponse

Status = status_pb2.Status

_DOMAIN = "aiplatform.googleapis.com"
_MAX_BYTES = 3000
"""Bytes for the text, and the same for the details: clients refuse responses with more than 8 KiB of metadata."""

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
"""Codes by HTTP status, for responses that do not name a code."""

_GATEWAY_CODES: dict[type[TurnoutError], str] = {
    Busy: "RESOURCE_EXHAUSTED",
    Denied: "PERMISSION_DENIED",
    Invalid: "INVALID_ARGUMENT",
    BadResponse: "INTERNAL",
    ServiceUnreachable: "UNAVAILABLE",
}


def of_error(error: TurnoutError) -> Status:
    """An error of the gateway itself."""
    code = _GATEWAY_CODES.get(type(error), "INTERNAL")
    return status(code, error.message, code)


def of_answer(http: int, body: bytes) -> Status:
    """The error of a REST answer. A body that is not in Google's form becomes the message."""
    try:
        error = msgspec.json.decode(body)["error"]
        code, message, details = error["status"], str(error["message"]), error.get("details")
        number = code_pb2.Code.Value(code)
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError, KeyError, TypeError, ValueError):
        text = body.decode(errors="replace").strip() or f"the service answered with HTTP {http}"
        return status(_CODES.get(http, "UNKNOWN"), text)
    return _shortened(Status(code=number, message=message, details=_packed(details)))


def status(code: str, message: str, reason: str = "") -> Status:
    """`reason`: the text of `exc.reason` in the client."""
    found = Status(code=code_pb2.Code.Value(code), message=message)
    if reason:
        found.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason, domain=_DOMAIN))
    return _shortened(found)


def _packed(details: Any) -> list[any_pb2.Any]:
    packed: list[any_pb2.Any] = []
    for detail in details if isinstance(details, list) else ():
        try:
            packed.append(json_format.ParseDict(detail, any_pb2.Any(), ignore_unknown_fields=True))
        except (json_format.ParseError, AttributeError, TypeError):
            continue  # this detail cannot be decoded: keep the others
    return packed


def _shortened(found: Status) -> Status:
    """Shortens the text, which is sent percent-encoded (up to nine bytes per letter) and again in the details."""
    text = found.message
    while len(quote(text)) > _MAX_BYTES:
        text = text[: min(len(text) * _MAX_BYTES // len(quote(text)), len(text) - 1)]
    found.message = text if text == found.message else text.rstrip() + " …"
    while found.details and found.ByteSize() > _MAX_BYTES:
        del found.details[-1]
    return found
