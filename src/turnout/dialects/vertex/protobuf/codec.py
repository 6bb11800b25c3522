"""Protobuf's JSON to the messages of `wire` and back.

What Google's own parser takes is taken: either spelling of a field, enums by name or number, 64-bit numbers as text,
`null` for what is not set. Errors are worded as its are, with the field's name from the .proto file.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from turnout.dialects.vertex import schema, times
from turnout.dialects.vertex.schema import Field, Schema
from turnout.dialects.vertex.spelling import SHOWN, At, snake
from turnout.dialects.vertex.wire import CustomJob, Message
from turnout.dialects.vertex.wire_tuning import HyperparameterTuningJob
from turnout.errors import Invalid

M = TypeVar("M", bound=Message)

INVALID = "Invalid JSON payload received."
_NUMBER = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,9})?")
_BITS = {"int32": 31, "int64": 63}
_NOT_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class Decoded(NamedTuple, Generic[M]):
    message: M
    at: At
    """Its root, with the caller's spelling."""


def custom_job(body: bytes) -> Decoded[CustomJob]:
    """The body of a create. Raises Invalid."""
    return decode(body, CustomJob, "custom_job")


def tuning_job(body: bytes) -> Decoded[HyperparameterTuningJob]:
    return decode(body, HyperparameterTuningJob, "hyperparameter_tuning_job")


def decode(body: bytes, kind: type[M], root: str) -> Decoded[M]:
    """`root` is what the whole body is called in errors. An empty body is an empty message."""
    try:
        value = msgspec.json.decode(body or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"{INVALID} It is not JSON: {error}.") from None
    reader = _Reader(root)
    try:
        return Decoded(reader.message(value, schema.of(kind), ""), At(reader.names))
    except RecursionError:
        raise Invalid(f"{INVALID} It is nested too deeply.") from None


def encode(message: Message) -> dict[str, Any]:
    """As Google answers: camelCase, names of enums, 64-bit numbers as text, nothing that is zero or not set."""
    shown: dict[str, Any] = {}
    for field in schema.of(type(message)).fields:
        value = getattr(message, field.name)
        if field.repeated:
            if value:
                shown[field.json] = [_encoded(field, one) for one in value]
        elif field.map:
            if value:
                shown[field.json] = {key: _encoded(field, one) for key, one in value.items()}
        elif value is not None and (field.optional or value):
            shown[field.json] = _encoded(field, value)
    return shown


class _Reader:
    def __init__(self, root: str) -> None:
        self._root = root
        self.names: dict[str, str] = {}

    def message(self, value: Any, table: Schema, path: str) -> Any:
        if not isinstance(value, dict):
            raise self._wrong(
                path, f"type.googleapis.com/{schema.PACKAGE}.{table.message.__qualname__}", value
            )
        given: dict[str, Any] = {}
        for name, one in value.items():
            field = table.by_name.get(name)
            if field is None:
                raise self._unknown(name, path)
            place = f"{path}.{field.json}" if path else field.json
            if place in self.names:
                raise self._invalid(
                    place, f"it is given twice, as {field.json} and as {field.name}; once is enough"
                )
            if field.name != field.json:
                self.names[place] = name
            if one is None or field.output:
                continue
            self._check_oneof(field, table, given, path, name)
            given[field.name] = self._field(field, one, place)
        return table.message(**given)

    def _check_oneof(self, field: Field, table: Schema, given: dict[str, Any], path: str, name: str) -> None:
        if field.oneof and any(other in given for other in table.message.ONEOFS[field.oneof]):
            where = self._spell(path)
            raise Invalid(
                f"Invalid value at '{where}' (oneof), oneof field '{field.oneof}' is already set. Cannot set '{name}'",
                field=where,
            )

    def _field(self, field: Field, value: Any, path: str) -> Any:
        if field.repeated:
            if not isinstance(value, list):
                raise self._invalid(path, "it must be a list")
            return [self._element(field, one, f"{path}[{index}]") for index, one in enumerate(value)]
        if field.map:
            if not isinstance(value, dict):
                raise self._invalid(path, "it must be an object")
            return {
                key: self._element(field, one, f"{path}[{index}].value")
                for index, (key, one) in enumerate(value.items())
            }
        if isinstance(value, list):
            parent, _, name = path.rpartition(".")
            raise self._unknown(name, parent, "Proto field is not repeating, cannot start list.")
        return self._one(field, value, path)

    def _element(self, field: Field, value: Any, path: str) -> Any:
        if value is None:
            raise self._wrong(path, field.type_name, value)
        return self._one(field, value, path)

    def _one(self, field: Field, value: Any, path: str) -> Any:
        if field.message:
            return self.message(value, schema.of(field.message), path)
        read = _enum(field.enum, value) if field.enum else _READERS[field.kind](value)
        if read is None:
            raise self._wrong(path, field.type_name, value)
        return read

    def _spell(self, path: str) -> str:
        return f"{self._root}.{snake(path)}" if path else self._root

    def _unknown(self, name: str, path: str, why: str = "Cannot find field.") -> Invalid:
        at = f" at '{self._spell(path)}'"
        return Invalid(f'{INVALID} Unknown name "{name[:SHOWN]}"{at}: {why}', field=self._spell(path))

    def _invalid(self, path: str, why: str) -> Invalid:
        return Invalid(f"{INVALID} Invalid value at '{self._spell(path)}': {why}.", field=self._spell(path))

    def _wrong(self, path: str, type_name: str, value: Any) -> Invalid:
        text = msgspec.json.encode(value).decode()
        text = text if len(text) <= SHOWN else text[:SHOWN] + "…"
        hint = _HINTS.get(type_name, "")
        return Invalid(
            f"Invalid value at '{self._spell(path)}' ({type_name}), {text}{hint}", field=self._spell(path)
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
    """A whole number, also spelt as text or with a fraction of zero."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        value = str(value)
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            return None
        exact = Decimal(value)
        # Otherwise a short text could make a number that fills the memory.
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
