"""Checks the types of a row's values, because SQLite stores values of any type in any column."""

from enum import Enum
from itertools import product
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

from msgspec import Struct

_WORDS = {int: "a whole number", str: "a text", float: "a number", bytes: "bytes", NoneType: "nothing"}
_STORED: dict[type, tuple[type, ...]] = {float: (float, int), bytes: (bytes, memoryview)}


class RowShape:
    def __init__(self, **columns: tuple[type, ...]) -> None:
        """`columns`: the types of each column, of int, str, float, bytes and NoneType."""
        self._columns = columns
        kinds = [_stored(column) for column in columns.values()]
        # Looking up a tuple of types is much faster than checking each value.
        self._valid = frozenset(product(*kinds))
        self._kinds = tuple(map(frozenset[type], kinds))

    @staticmethod
    def of(record: type[Struct]) -> "RowShape":
        """The shape of rows in the order of the struct's fields. An Enum is stored as a code."""
        hints = get_type_hints(record)
        return RowShape(**{name: _of_field(hints[name]) for name in record.__struct_fields__})

    def check(self, row: tuple[Any, ...]) -> None:
        """Raises TypeError that names the column."""
        if tuple(map(type, row)) not in self._valid:
            self._refuse(row)

    def repaired(self, row: tuple[Any, ...]) -> list[Any]:
        """The row with a default in each column that has a value of the wrong type."""
        columns = zip(row, self._kinds, self._columns.values(), strict=True)
        return [value if type(value) in kinds else _default(value, types) for value, kinds, types in columns]

    def _refuse(self, row: tuple[Any, ...]) -> None:
        for value, kinds, (name, types) in zip(row, self._kinds, self._columns.items(), strict=True):
            if type(value) not in kinds:
                right = " or ".join(_WORDS[kind] for kind in types)
                raise TypeError(f"{name} is {str(value)[:100]!r} and should be {right}")


def _of_field(hint: Any) -> tuple[type, ...]:
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return tuple(int if issubclass(kind, Enum) else kind for kind in kinds)


def _stored(types: tuple[type, ...]) -> list[type]:
    return [stored for kind in types for stored in _STORED.get(kind, (kind,))]


def _default(value: Any, types: tuple[type, ...]) -> Any:
    if NoneType in types:
        return None
    if types == (str,):
        return bytes(value).decode(errors="replace") if isinstance(value, bytes | memoryview) else str(value)
    return types[0]()
