"""The `filter` of Cloud Logging as it is used for one job: the grammar of Google's filters, for the fields of an entry.

    restriction path ( = | != | < | <= | > | >= | : ) value

A path is `resource.labels.job_id` and the like. Comparisons ignore the case of text; severities are compared
by their order. `:` searches for a part of the text; `:*` tests whether the field exists.
"""

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from turnout.dialects.vertex.filter_grammar import WORD, Parser, Value, invalid
from turnout.dialects.vertex.protobuf.field_path import quoted
from turnout.dialects.vertex.protobuf.times import parse_time

SEVERITIES = ("DEFAULT", "DEBUG", "INFO", "NOTICE", "WARNING", "ERROR", "CRITICAL", "ALERT", "EMERGENCY")
FOREVER = (1 << 63) - 1

Operator = Literal["=", "!=", "<", "<=", ">", ">=", ":"]
Path = tuple[str, ...]
JOB: Path = ("resource", "labels", "job_id")
TIME: Path = ("timestamp",)
SEVERITY: Path = ("severity",)

_ROOTS = ("resource", "timestamp", "severity", "logName", "insertId", "textPayload", "jsonPayload", "labels")
TIMES = ("timestamp", "receiveTimestamp")
_KEY = re.compile(r"[^\s()\"'=!<>:.,~]+")
_OPERATOR = re.compile(r"=~|!~|<=|>=|!=|[=<>:]")


@dataclass(frozen=True, slots=True)
class Comparison:
    path: Path
    op: Operator
    value: str | int
    """Nanoseconds for a time, the rank for a severity."""


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Negation:
    part: "Filter"


Filter = Comparison | And | Or | Negation


class Span(NamedTuple):
    """A time range, both ends included, outside of which no entry matches."""

    start: int = 0
    end: int = FOREVER


def parse(text: str) -> Filter:
    """Raises Invalid with the position of the error."""
    return _LogFilterParser(text).parse()


def job_id(condition: Filter) -> str | None:
    """The job that every matching entry belongs to; None if the filter does not name one."""
    match condition:
        case Comparison(path, "=", str(value)) if path == JOB:
            return value
        case And(parts):
            return next((job for job in map(job_id, parts) if job is not None), None)
        case _:
            return None


def time_span(condition: Filter) -> Span:
    match condition:
        case Comparison(path, op, int(at)) if path == TIME:
            return _span(op, at)
        case And(parts):
            spans = [time_span(part) for part in parts]
            return Span(
                max((span.start for span in spans), default=0),
                min((span.end for span in spans), default=FOREVER),
            )
        case Or(parts):
            spans = [time_span(part) for part in parts]
            return Span(min(span.start for span in spans), max(span.end for span in spans))
        case _:
            return Span()


class _LogFilterParser(Parser[Filter]):
    MAX_CONDITIONS = 100
    """Fewer than in other filters: each condition may be tested on very many lines."""

    def all_of(self, parts: list[Filter]) -> Filter:
        return And(tuple(parts))

    def any_of(self, parts: list[Filter]) -> Filter:
        return Or(tuple(parts))

    def negation(self, part: Filter) -> Filter:
        return Negation(part)

    def restriction(self) -> Filter:
        start = self._at
        word = None if self._peek("AND") or self._peek("OR") else self._match(WORD)
        if word is None:
            raise self._invalid('expected a field, as in resource.labels.job_id="123"')
        if word[0] not in (*_ROOTS, *TIMES):
            raise invalid(
                start,
                f"{quoted(word[0])} is not a field that this service supports; use one of {', '.join(_ROOTS)}",
            )
        path = [word[0]]
        while self._next("."):
            self._at += 1
            path.append(self._key())
        self._skip()
        at = self._at
        operator = self._match(_OPERATOR)
        if operator is None or operator[0] in ("=~", "!~"):
            raise invalid(at, f"{'.'.join(path)[:100]} must be compared by one of = != < <= > >= :")
        self._skip()
        value = self._value()
        self._skip()
        return _comparison(tuple(path), cast("Operator", operator[0]), value)

    def _key(self) -> str:
        quoted = self._quoted()
        if quoted is not None:
            return quoted
        key = self._match(_KEY)
        if key is None:
            raise self._invalid("expected a field's name")
        return key[0]


def _comparison(path: Path, op: Operator, value: Value) -> Filter:
    if op == ":" and value.text == "*":
        return Comparison(path, op, "*")
    if path[0] in TIMES:
        at = parse_time(value.text)
        if at is None or op == ":" or len(path) > 1:
            raise invalid(value.at, f'{path[0]} is compared with a time such as "2014-10-02T15:01:23Z"')
        return Comparison(path, op, at)
    if path == SEVERITY:
        name = value.text.upper()
        if name not in SEVERITIES or op == ":":
            raise invalid(
                value.at, f"{quoted(value.text)} is not a severity; use one of {', '.join(SEVERITIES)}"
            )
        return Comparison(path, op, SEVERITIES.index(name))
    return Comparison(path, op, value.text)


def _span(op: Operator, at: int) -> Span:
    match op:
        case "=":
            return Span(at, at)
        case "<" | "<=":
            return Span(end=at)
        case ">" | ">=":
            return Span(at)
        case _:
            return Span()
