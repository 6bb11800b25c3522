"""The classes of `wire` as tables, for decoding, encoding and field masks."""

import types
from enum import IntEnum
from functools import cache
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from turnout.dialects.vertex.wire import Message

PACKAGE = "google.cloud.aiplatform.v1"


class Field(NamedTuple):
    name: str
    """As in the .proto file: `display_name`."""
    json: str
    """`displayName`."""
    kind: str
    """string, bool, double, int32, int64, duration, timestamp, any, value, struct, enum or message."""
    repeated: bool = False
    map: bool = False
    """Text to `kind`."""
    message: type[Message] | None = None
    enum: type[IntEnum] | None = None
    output: bool = False
    oneof: str = ""
    optional: bool = False
    """An absent value differs from zero."""

    @property
    def type_name(self) -> str:
        """The name in Google's errors."""
        if self.message:
            return f"type.googleapis.com/{PACKAGE}.{self.message.__qualname__}"
        if self.enum:
            return f"type.googleapis.com/{PACKAGE}.{self.enum.__qualname__}"
        return _TYPE_NAMES[self.kind]


class Schema(NamedTuple):
    message: type[Message]
    fields: tuple[Field, ...]
    by_name: dict[str, Field]
    """By both spellings."""


_TYPE_NAMES = {
    "string": "TYPE_STRING",
    "bool": "TYPE_BOOL",
    "double": "TYPE_DOUBLE",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "duration": "type.googleapis.com/google.protobuf.Duration",
    "timestamp": "type.googleapis.com/google.protobuf.Timestamp",
    "any": "type.googleapis.com/google.protobuf.Any",
    "value": "type.googleapis.com/google.protobuf.Value",
    "struct": "type.googleapis.com/google.protobuf.Struct",
}
_SCALARS = {str: "string", bool: "bool", float: "double"}


@cache
def of(message: type[Message]) -> Schema:
    hints = get_type_hints(message, include_extras=True)
    oneofs = {name: oneof for oneof, names in message.ONEOFS.items() for name in names}
    fields = tuple(
        _field(hints[attribute.name], attribute.name, attribute.encode_name)._replace(
            output=attribute.name in message.OUTPUT, oneof=oneofs.get(attribute.name, "")
        )
        for attribute in msgspec.structs.fields(message)
    )
    by_name = {field.name: field for field in fields} | {field.json: field for field in fields}
    return Schema(message, fields, by_name)


def _field(hint: Any, name: str, json: str) -> Field:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        inner = next(member for member in get_args(hint) if member is not types.NoneType)
        return _field(inner, name, json)._replace(optional=True)
    if origin is list:
        return _field(get_args(hint)[0], name, json)._replace(repeated=True)
    if origin is dict:
        return _field(get_args(hint)[1], name, json)._replace(map=True)
    if origin is Annotated:
        return Field(name, json, hint.__metadata__[0])
    if issubclass(hint, Message):
        return Field(name, json, "message", message=hint)
    if issubclass(hint, IntEnum):
        return Field(name, json, "enum", enum=hint)
    return Field(name, json, _SCALARS[hint])
