"""Protobuf's JSON to the messages of `wire` and back.

Accepts what Google's parser accepts: both spellings of a field, enums by name or number, 64-bit numbers as text, `null`
for a field that is not set. Errors have the wording of Google's, with the field name of the .proto file.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from turnout.dialects.vertex.protobuf import schema, times
from turnout.dialects.vertex.protobuf.field_path import MAX_QUOTED, FieldPath, snake
from turnout.dialects.vertex.protobuf.schema import Field, Schema
from turnout.dialects.vertex.tuning.wire import HyperparameterTuningJob
from turnout.dialects.vertex.wire import CustomJob, Message
from turnout.errors import Invalid

M = TypeVar("M", bound=Message)

INVALID = "Invalid JSON payload received."
_NUMBER = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,9})?")
_BITS = {"int32": 31, "int64": 63}
_NOT_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class Decoded(NamedTuple, Generic[M]):
    message: M
    path: FieldPath
    """The root of the message. Its paths have the caller's spelling of each field."""


def custom_job(body: bytes) -> Decoded[CustomJob]:
    """The body of a create. Raises Invalid."""
    return decode(body, CustomJob, "custom_job")


def tuning_job(body: bytes) -> Decoded[HyperparameterTuningJob]:
    return decode(body, HyperparameterTuningJob, "hyperparameter_tuning_job")


def has_field(body: bytes, *names: str) -> bool:
    """Whether the body has one of these fields. A body that is not JSON has none."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(value, dict) and not value.keys().isdisjoint(names)


def decode(body: bytes, kind: type[M], root: str) -> Decoded[M]:
    """`root` is the name of the whole body in errors. An empty body is an empty message."""
    try:
        value = msgspec.json.decode(body or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"{INVALID} It is not JSON: {error}.") from None
    reader = _Reader(root)
    try:
        return Decoded(reader.message(value, schema.of(kind), ""), FieldPath(reader.spellings))
    except RecursionError:
        raise Invalid(f"{INVALID} It is nested too deeply.") from None


def decode_value(value: Any, kind: type[M], root: str, field: str) -> Decoded[M]:
    """A message inside a google.protobuf.Value, the field `field` of the message that `root` names in errors."""
    reader = _Reader(root)
    try:
        message = reader.message(value, schema.of(kind), field)
    except RecursionError:
        raise Invalid(f"{INVALID} It is nested too deeply.") from None
    return Decoded(message, FieldPath(reader.spellings, field))


def encode(message: Message) -> dict[str, Any]:
    """As Google responds: camelCase, enum names, 64-bit numbers as text, without fields that are zero or not set."""
    document: dict[str, Any] = {}
    for field in schema.of(type(message)).fields:
        value = getattr(message, field.name)
        if field.repeated:
            if value:
                document[field.json] = [_encoded(field, item) for item in value]
        elif field.map:
            if value:
                document[field.json] = {key: _encoded(field, item) for key, item in value.items()}
        elif value is not None and (field.optional or value):
            document[field.json] = _encoded(field, value)
    return document


class _Reader:
    def __init__(self, root: str) -> None:
        self._root = root
        self.spellings: dict[str, str] = {}

    def message(self, value: Any, table: Schema, path: str) -> Any:
        if not isinstance(value, dict):
            raise self._invalid_type(
                path, f"type.googleapis.com/{schema.PACKAGE}.{table.message.__qualname__}", value
            )
        given: dict[str, Any] = {}
        for name, field_value in value.items():
            field = table.by_name.get(name)
            if field is None:
                raise self._unknown(name, path)
            field_path = f"{path}.{field.json}" if path else field.json
            if field_path in self.spellings:
                raise self._invalid(
                    field_path, f"it is set twice, as {field.json} and as {field.name}; use one of them"
                )
            if field.name != field.json:
                self.spellings[field_path] = name
            if field_value is None or field.output:
                continue
            self._check_oneof(field, table, given, path, name)
            given[field.name] = self._field(field, field_value, field_path)
        return table.message(**given)

    def _check_oneof(self, field: Field, table: Schema, given: dict[str, Any], path: str, name: str) -> None:
        if field.oneof and any(other in given for other in table.message.ONEOFS[field.oneof]):
            parent = self._name_of(path)
            raise Invalid(
                f"Invalid value at '{parent}' (oneof), oneof field '{field.oneof}' is already set. Cannot set '{name}'",
                field=parent,
            )

    def _field(self, field: Field, value: Any, path: str) -> Any:
        if field.repeated:
            if not isinstance(value, list):
                raise self._invalid(path, "it must be a list")
            return [self._element(field, item, f"{path}[{index}]") for index, item in enumerate(value)]
        if field.map:
            if not isinstance(value, dict):
                raise self._invalid(path, "it must be an object")
            return {
                key: self._element(field, item, f"{path}[{index}].value")
                for index, (key, item) in enumerate(value.items())
            }
        if isinstance(value, list) and field.kind != "value":
            parent, _, name = path.rpartition(".")
            raise self._unknown(name, parent, "Proto field is not repeating, cannot start list.")
        return self._single(field, value, path)

    def _element(self, field: Field, value: Any, path: str) -> Any:
        if value is None:
            raise self._invalid_type(path, field.type_name, value)
        return self._single(field, value, path)

    def _single(self, field: Field, value: Any, path: str) -> Any:
        if field.message:
            return self.message(value, schema.of(field.message), path)
        read = _enum(field.enum, value) if field.enum else _READERS[field.kind](value)
        if read is None:
            raise self._invalid_type(path, field.type_name, value)
        return read

    def _name_of(self, path: str) -> str:
        return f"{self._root}.{snake(path)}" if path else self._root

    def _unknown(self, name: str, path: str, why: str = "Cannot find field.") -> Invalid:
        at = f" at '{self._name_of(path)}'"
        return Invalid(f'{INVALID} Unknown name "{name[:MAX_QUOTED]}"{at}: {why}', field=self._name_of(path))

    def _invalid(self, path: str, why: str) -> Invalid:
        return Invalid(
            f"{INVALID} Invalid value at '{self._name_of(path)}': {why}.", field=self._name_of(path)
        )

    def _invalid_type(self, path: str, type_name: str, value: Any) -> Invalid:
        text = msgspec.json.encode(value).decode()
        text = text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "…"
        hint = _HINTS.get(type_name, "")
        return Invalid(
            f"Invalid value at '{self._name_of(path)}' ({type_name}), {text}{hint}", field=self._name_of(path)
        )


_HINTS = {
    "type.googleapis.com/google.protobuf.Duration": '; a duration is text such as "3600s" or "3.5s"',
    "type.googleapis.com/google.protobuf.Timestamp": '; a time is text such as "2014-10-02T15:01:23Z"',
}


def _enum(kind: type[IntEnum], value: Any) -> IntEnum | None:
    if isinstance(value, str) and value in kind.__members__:
        return kind[value]
    number = _integer(value, 31)
    return kind(number) if number in {member.value for member in kind} else None


def _integer(value: Any, bits: int) -> int | None:
    """A whole number, also as text or with a fraction of zero."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        value = str(value)
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            return None
        exact = Decimal(value)
        # Otherwise a short text such as 1e999999999 becomes a number that fills the memory.
        if exact.adjusted() > 20 or exact != exact.to_integral_value():
            return None
        value = int(exact)
    if not isinstance(value, int) or not -(1 << bits) <= value < 1 << bits:
        return None
    return value


def _double(value: Any) -> float | None:
    if isinstance(value, str):
        if value in _NOT_NUMBERS:
            return _NOT_NUMBERS[value]
        return float(value) if _NUMBER.fullmatch(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _bool(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


_READERS: dict[str, Callable[[Any], Any]] = {
    "string": _text,
    "bool": _bool,
    "double": _double,
    "int32": lambda value: _integer(value, _BITS["int32"]),
    "int64": lambda value: _integer(value, _BITS["int64"]),
    "duration": lambda value: times.parse_duration(value) if isinstance(value, str) else None,
    "timestamp": lambda value: times.parse_time(value) if isinstance(value, str) else None,
    "any": lambda value: value if isinstance(value, dict) else None,
    "value": lambda value: value,
    "struct": lambda value: value if isinstance(value, dict) else None,
}

_WRITERS: dict[str, Callable[[Any], Any]] = {
    "int64": str,
    "duration": times.spell_duration,
    "timestamp": times.spell_time,
    "enum": lambda value: value.name,
}


def _encoded(field: Field, value: Any) -> Any:
    if field.message:
        return encode(value)
    write = _WRITERS.get(field.kind)
    return write(value) if write else value
