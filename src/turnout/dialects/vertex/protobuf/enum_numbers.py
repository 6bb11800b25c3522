"""Enums as numbers, for requests with `$alt=json;enum-encoding=int`."""

from typing import Any

from turnout.dialects.vertex.protobuf import schema
from turnout.dialects.vertex.protobuf.schema import Field
from turnout.dialects.vertex.wire import Message


def apply(document: dict[str, Any], kind: type[Message]) -> dict[str, Any]:
    """The document with the number of each enum in place of its name."""
    fields = schema.of(kind).by_name
    return {name: _value(fields[name], value) for name, value in document.items()}


def _value(field: Field, value: Any) -> Any:
    if not (field.enum or field.message):
        return value
    if field.repeated:
        return [_single(field, item) for item in value]
    if field.map:
        return {key: _single(field, item) for key, item in value.items()}
    return _single(field, value)


def _single(field: Field, value: Any) -> Any:
    if field.enum:
        return field.enum[value].value
    assert field.message is not None
    return apply(value, field.message)
