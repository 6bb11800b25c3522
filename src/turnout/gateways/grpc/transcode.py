"""Messages as REST calls, and REST answers as messages. Pure."""

from typing import NamedTuple
from urllib.parse import quote, urlencode

import msgspec
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from turnout.doors.grpc.methods import Method
from turnout.errors import Invalid, TurnoutError

LONGEST_TARGET = 60_000
"""Characters. The service reads a line of 64 KiB at the most."""


class Call(NamedTuple):
    verb: str
    target: str
    """The path and the query, encoded."""
    body: bytes


class NotUnderstood(TurnoutError):
    """An answer of the service that the message classes here cannot hold."""


def call(method: Method, request: bytes) -> Call:
    """Raises Invalid."""
    fields = _fields(method, request)
    name = fields.pop(method.field, "")
    if not method.fits(name):
        raise Invalid(f"{method.field}: {name!r} must look like {method.resource}", field=method.field)
    target = method.path.replace(f"{{{method.field}}}", quote(name, safe="/"))
    if method.body:
        content = fields if method.body == "*" else fields.get(method.body, {})
        return Call(method.verb, target, msgspec.json.encode(content))
    target = f"{target}?{urlencode(fields)}" if fields else target
    if len(target) > LONGEST_TARGET:
        longest = max(fields, key=lambda field: len(str(fields[field])), default=method.field)
        raise Invalid(f"{longest} is too long", field=longest)
    return Call(method.verb, target, b"")


def answer(method: Method, body: bytes) -> bytes:
    """The message, as it goes over the wire. Raises NotUnderstood."""
    try:
        # Fields that a newer service has are not for these classes.
        message = json_format.Parse(body or b"{}", method.response(), ignore_unknown_fields=True)
        return message.SerializeToString()
    except (json_format.ParseError, UnicodeDecodeError) as error:
        raise NotUnderstood(f"the answer is no {method.response.DESCRIPTOR.name}: {error}") from None


def _fields(method: Method, request: bytes) -> dict:
    kind = method.request.DESCRIPTOR.name
    try:
        return json_format.MessageToDict(method.request.FromString(request))
    except DecodeError:
        raise Invalid(f"what was sent is no {kind}") from None
    except (json_format.Error, ValueError, TypeError, OverflowError) as error:
        # A time, a duration or a mask that has no spelling in JSON.
        raise Invalid(f"{kind} has a value that does not exist: {error}") from None
