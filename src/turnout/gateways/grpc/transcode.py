"""Converts messages to REST calls, and REST responses to messages. Pure."""

from typing import NamedTuple
from urllib.parse import quote, urlencode

import msgspec
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from turnout.bodies import MOST_VALUES
from turnout.errors import Invalid, TurnoutError
from turnout.gateways.grpc.methods import Method

_SURELY_ALLOWED = 64 << 10
LONGEST_TARGET = 60_000
"""Characters. The service reads a request line of at most 64 KiB."""


class RestCall(NamedTuple):
    verb: str
    target: str
    """The path and the query, encoded."""
    body: bytes


class BadResponse(TurnoutError):
    """The message classes cannot represent a response of the service."""


def call(method: Method, request: bytes) -> RestCall:
    """Raises Invalid."""
    fields = _fields(method, request)
    name = _take(fields, method.field)
    if not method.fits(name):
        raise Invalid(f"{method.field}: {name!r} must look like {method.resource}", field=method.field)
    target = method.path.replace(f"{{{method.field}}}", quote(name, safe="/"))
    content = b""
    if method.body:
        content = msgspec.json.encode(fields if method.body == "*" else fields.pop(_camel(method.body), {}))
        fields = {} if method.body == "*" else fields
    target = f"{target}?{urlencode(_parameters(fields), doseq=True)}" if fields else target
    if len(target) > LONGEST_TARGET:
        longest = max(fields, key=lambda field: len(str(fields[field])), default=method.field)
        raise Invalid(f"{longest} is too long", field=longest)
    return RestCall(method.verb, target, content)


def answer(method: Method, body: bytes) -> bytes:
    """The encoded message. Raises BadResponse."""
    try:
        # A newer service may have fields that these classes lack.
        message = json_format.Parse(body or b"{}", method.response(), ignore_unknown_fields=True)
        return message.SerializeToString()
    except (json_format.ParseError, UnicodeDecodeError) as error:
        raise BadResponse(f"the response is not a valid {method.response.DESCRIPTOR.name}: {error}") from None


def _take(fields: dict, path: str) -> str:
    """Removes the field in the path, such as `name` or, inside a message, `model.name`."""
    *parents, last = (_camel(step) for step in path.split("."))
    for step in parents:
        fields = fields.get(step, {})
    return fields.pop(last, "")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _parameters(fields: dict) -> dict:
    """For the query: JSON's spelling of booleans."""
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in fields.items()}


def _fields(method: Method, request: bytes) -> dict:
    kind = method.request.DESCRIPTOR.name
    try:
        message = method.request.FromString(request)
        if len(request) > _SURELY_ALLOWED and _values(message) > MOST_VALUES:
            raise Invalid(f"{kind} is too large: it may have {MOST_VALUES} values")
        return json_format.MessageToDict(message)
    except DecodeError:
        raise Invalid(f"the message is not a valid {kind}") from None
    except (json_format.Error, ValueError, TypeError, OverflowError) as error:
        # A time, a duration or a mask that JSON cannot represent.
        raise Invalid(f"{kind} has an invalid value: {error}") from None


def _values(message: Message) -> int:
    """The number of values, or any number above MOST_VALUES. A value takes much more memory than its bytes."""
    count = 0
    for field, value in message.ListFields():
        values = value if field.is_repeated else (value,)
        count += len(values)
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for inner in values:
                count += _values(inner)
                if count > MOST_VALUES:
                    break
        if count > MOST_VALUES:
            break
    return count
