"""The `filter` of Cloud Logging as it is used for one job: the grammar of Google's filters, for the fields of an entry.

    restriction path ( = | != | < | <= | > | >= | : ) value

A path is `resource.labels.job_id` and the like. Text is compared without regard to case, severities by their order,
times as times. `:` looks for a part of the text, and `:*` asks whether there is any.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from turnout.dialects.vertex.grammar import WORD, Parser, Value, wrong
from turnout.dialects.vertex.spelling import shown
from turnout.dialects.vertex.times import parse_time

SEVERITIES = ("DEFAULT", "DEBUG", "INFO", "NOTICE", "WARNING", "ERROR", "CRITICAL", "ALERT", "EMERGENCY")
FOREVER = (1 << 63) - 1

Operator = Literal["=", "!=", "<", "<=", ">", ">=", ":"]
Path = tuple[str, ...]
JOB: Path = ("resource", "labels", "job_id")
TIME: Path = ("timestamp",)
SEVERITY: Path = ("severity",)

_ROOTS = ("resource", "timestamp", "severity", "logName", "insertId", "textPayload", "jsonPayload", "labels")
_TIMES = ("timestamp", "receiveTimestamp")
_KEY = re.compile(r"[^\s()\"'=!<>:.,~]+")
_OPERATOR = re.compile(r"=~|!~|<=|>=|!=|[=<>:]")


@dataclass(frozen=True, slots=True)
class Term:
    path: Path
    op: Operator
    value: str | int
    """Nanoseconds for a time, the rank for a severity."""


@dataclass(frozen=True, slots=True)
class Every:
    parts: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Some:
    parts: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Never:
    part: "Filter"


Filter = Term | Every | Some | Never


class Span(NamedTuple):
    """From when to when, both included. An entry outside cannot match."""

    start: int = 0
    end: int = FOREVER


def parse(text: str) -> Filter:
    """Raises Invalid, which says at which character."""
    return _Parser(text).all()


def job_of(found: Filter) -> str | None:
    """The one job that all that matches is of; None if the filter does not say."""
    match found:
        case Term(path, "=", str(value)) if path == JOB:
            return value
        case Every(parts):
            return next((job for job in map(job_of, parts) if job is not None), None)
        case _:
            return None


def span_of(found: Filter) -> Span:
    match found:
        case Term(path, op, int(at)) if path == TIME:
            return _span(op, at)
        case Every(parts):
            spans = [span_of(part) for part in parts]
            return Span(
                max((one.start for one in spans), default=0), min((one.end for one in spans), default=FOREVER)
            )
        case Some(parts):
            spans = [span_of(part) for part in parts]
            return Span(min(one.start for one in spans), max(one.end for one in spans))
        case _:
            return Span()


def matches(found: Filter, entry: dict[str, Any], at: int) -> bool:
    """`at` is the entry's time."""
    match found:
        case Every(parts):
            return all(matches(part, entry, at) for part in parts)
        case Some(parts):
            return any(matches(part, entry, at) for part in parts)
        case Never(part):
            return not matches(part, entry, at)
        case Term(path, op, int(value)):
            return _compared(at if path[0] in _TIMES else SEVERITIES.index(entry["severity"]), op, value)
        case Term(path, op, value):
            return _text_matches(_look(entry, path), op, str(value))


class _Parser(Parser[Filter]):
    MOST = 100
    """Each may be tried on very many lines."""

    def every(self, parts: list[Filter]) -> Filter:
        return Every(tuple(parts))

    def some(self, parts: list[Filter]) -> Filter:
        return Some(tuple(parts))

    def negated(self, part: Filter) -> Filter:
        return Never(part)

    def restriction(self) -> Filter:
        start = self._at
        word = None if self._peek("AND") or self._peek("OR") else self._match(WORD)
        if word is None:
            raise self._wrong('a field must come here, as in resource.labels.job_id="123"')
        if word[0] not in (*_ROOTS, *_TIMES):
            raise wrong(
                start, f"{shown(word[0])} is not a field of entries here; there are {', '.join(_ROOTS)}"
            )
        path = [word[0]]
        while self._next("."):
            self._at += 1
            path.append(self._key())
        self._skip()
        at = self._at
        operator = self._match(_OPERATOR)
        if operator is None or operator[0] in ("=~", "!~"):
            raise wrong(at, f"{'.'.join(path)[:100]} must be compared by one of = != < <= > >= : here")
        self._skip()
        value = self._value()
        self._skip()
        return _term(tuple(path), cast("Operator", operator[0]), value)

    def _key(self) -> str:
        quoted = self._quoted()
        if quoted is not None:
            return quoted
        key = self._match(_KEY)
        if key is None:
            raise self._wrong("a field's name must come here")
        return key[0]


def _term(path: Path, op: Operator, value: Value) -> Filter:
    if op == ":" and value.text == "*":
        return Term(path, op, "*")
    if path[0] in _TIMES:
        at = parse_time(value.text)
        if at is None or op == ":" or len(path) > 1:
            raise wrong(value.at, f'{path[0]} is compared with a time such as "2014-10-02T15:01:23Z"')
        return Term(path, op, at)
    if path == SEVERITY:
        name = value.text.upper()
        if name not in SEVERITIES or op == ":":
            raise wrong(value.at, f"{shown(value.text)} is not a severity; there are {', '.join(SEVERITIES)}")
        return Term(path, op, SEVERITIES.index(name))
    return Term(path, op, value.text)


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


def _look(entry: dict[str, Any], path: Path) -> Any:
    """None where there is nothing."""
    value: Any = entry
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _text_matches(held: Any, op: Operator, wanted: str) -> bool:
    if op == ":" and wanted == "*":
        return held is not None
    if held is None or isinstance(held, dict | list):
        # As in Logging: what is not there differs from everything, and is neither more nor less.
        return op == "!="
    text, wanted = str(held).lower(), wanted.lower()
    return wanted in text if op == ":" else _compared(text, op, wanted)


def _compared(held: Any, op: Operator, wanted: Any) -> bool:
    match op:
        case "=":
            return held == wanted
        case "!=":
            return held != wanted
        case "<":
            return held < wanted
        case "<=":
            return held <= wanted
        case ">":
            return held > wanted
        case _:
            return held >= wanted
