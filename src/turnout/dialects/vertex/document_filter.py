"""The `filter` of a list of stored documents, as a test of one document. The grammar is that of `filter_grammar`.

    restriction field { "." key } ( = | != | < | <= | > | >= | : ) value
              | function "(" value ")"

After `:`, `*` matches any text; without `*` the field must contain the value, or have it if it is a list.
"""

import difflib
import operator
import re
from collections.abc import Callable, Mapping
from fnmatch import translate as glob
from typing import Any, Literal

from turnout.dialects.vertex.filter_grammar import WORD, Parser, Value, invalid
from turnout.dialects.vertex.protobuf.field_path import quoted, snake
from turnout.dialects.vertex.protobuf.times import parse_time

Test = Callable[[dict[str, Any]], bool]
Kind = Literal["text", "number", "time", "map", "list", "function", "bool"]

Fields = Mapping[str, tuple[Kind, Callable[[dict[str, Any]], Any]]]
"""By snake-case name: the kind of a field, and what reads it. A map has keys: `labels.team`, `metadata.loss`. A
function reads the texts of which one must be its argument."""

_KEY = re.compile(r"[^\s()\"'=!<>:,.]+")
_OPERATOR = re.compile(r"<=|>=|!=|[=<>:]")
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TYPED = ("number_value", "string_value", "bool_value")
"""After a key of a map of values: `metadata.loss.number_value`."""


def parse(text: str, fields: Fields) -> Test:
    """Raises Invalid with the position of the error."""
    return _DocumentFilter(text, fields).parse()


def field(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda document: document.get(name)


class _DocumentFilter(Parser[Test]):
    def __init__(self, text: str, fields: Fields) -> None:
        super().__init__(text)
        self._fields = fields

    def all_of(self, parts: list[Test]) -> Test:
        return lambda document: all(part(document) for part in parts)

    def any_of(self, parts: list[Test]) -> Test:
        return lambda document: any(part(document) for part in parts)

    def negation(self, part: Test) -> Test:
        return lambda document: not part(document)

    def restriction(self) -> Test:
        start = self._at
        word = None if self._peek("AND") or self._peek("OR") else self._match(WORD)
        if word is None:
            raise self._invalid("expected a field, as in display_name=x")
        name = snake(word[0])
        if name not in self._fields:
            raise invalid(start, f"{quoted(word[0])} is not a field to filter by; {self._hint(name)}")
        kind, read = self._fields[name]
        if kind == "function":
            return self._call(name, read)
        keys = self._keys() if kind == "map" else []
        self._skip()
        at = self._at
        op = self._match(_OPERATOR)
        if op is None:
            raise self._invalid(f"{word[0]} must be compared by one of = != < <= > >= :")
        self._skip()
        value = self._value()
        self._skip()
        if kind == "map" and not keys:
            if op[0] != ":":
                raise invalid(at, f"{name} needs a key, as in {name}.team=vision or {name}:team")
            return lambda document: value.text in (read(document) or {})
        return _test(kind, _reader(read, keys), op[0], value, at, name)

    def _call(self, name: str, read: Callable[[dict[str, Any]], Any]) -> Test:
        if not self._take("("):
            raise self._invalid(f'{name} needs an argument, as in {name}("projects/…")')
        value = self._value()
        self._skip()
        if not self._take(")"):
            raise self._invalid("expected )")
        return lambda document: value.text in read(document)

    def _keys(self) -> list[str]:
        keys: list[str] = []
        while self._text.startswith(".", self._at):
            self._at += 1
            text = self._quoted()
            if text is None:
                match = self._match(_KEY)
                if match is None:
                    raise self._invalid("expected a key, as in labels.team=vision")
                text = match[0]
            keys.append(text)
        return keys

    def _hint(self, name: str) -> str:
        close = difflib.get_close_matches(name[:100], list(self._fields), 1)
        return f"did you mean {close[0]}?" if close else f"use one of {', '.join(self._fields)}"


def _reader(read: Callable[[dict[str, Any]], Any], keys: list[str]) -> Callable[[dict[str, Any]], Any]:
    if keys and keys[-1] in _TYPED:
        keys = keys[:-1]

    def value(document: dict[str, Any]) -> Any:
        found = read(document)
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found

    return value


def _test(
    kind: Kind, read: Callable[[dict[str, Any]], Any], op: str, value: Value, at: int, name: str
) -> Test:
    if op == ":":
        return _has(read, value.text)
    if kind == "list":
        raise invalid(at, f"{name} takes : only")
    wanted: Any = value.text
    convert: Callable[[Any], Any] = str
    if kind == "time":
        wanted, convert = parse_time(value.text), parse_time
        if wanted is None:
            raise invalid(value.at, f'{quoted(value.text)} must be a time such as "2014-10-02T15:01:23Z"')
    elif kind == "bool":
        wanted, convert = value.text.lower() == "true", bool
        return lambda document: _COMPARED[op](bool(read(document)), wanted)
    compared = _COMPARED[op]

    def test(document: dict[str, Any]) -> bool:
        found = read(document)
        if found is None or isinstance(found, dict | list):
            return op == "!="
        if isinstance(found, bool):
            found = str(found).lower()
        elif isinstance(found, int | float):
            try:
                return compared(found, float(value.text))
            except ValueError:
                return op == "!="
        return compared(convert(found), wanted)

    return test


def _has(read: Callable[[dict[str, Any]], Any], text: str) -> Test:
    if not text.strip("*"):
        return lambda document: read(document) is not None
    pattern = re.compile(glob("".join(f"[{char}]" if char in "[?" else char for char in text)), re.DOTALL)
    whole = "*" in text

    def matches(found: Any) -> bool:
        return bool(pattern.fullmatch(found)) if whole else text in found

    def test(document: dict[str, Any]) -> bool:
        found = read(document)
        if isinstance(found, list):
            return any(matches(str(item)) if whole else text == item for item in found)
        return found is not None and not isinstance(found, dict) and matches(str(found))

    return test
