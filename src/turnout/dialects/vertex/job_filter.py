"""The `filter` of a list as a Query: the grammar of Google's filters, for the fields of a job.

    restriction field ( = | != | < | <= | > | >= | : ) value

After `:`, `*` matches any text; without `*` the field must contain the value.
"""

import difflib
import re
from typing import Literal, cast

from turnout.dialects.vertex.filter_grammar import WORD, Parser, Value, invalid
from turnout.dialects.vertex.protobuf.field_path import quoted, snake
from turnout.dialects.vertex.protobuf.times import parse_time
from turnout.dialects.vertex.render import STATES
from turnout.dialects.vertex.translate import LABEL_PREFIX
from turnout.dialects.vertex.wire import JobState
from turnout.job import All, Any, Compare, Label, Not, Query, Reason, State

Operator = Literal["=", "!=", "<", "<=", ">", ">=", ":"]

_NAME = "display_name"
_STATE = "state"
_LABELS = "labels"
_TIMES = {"create_time": "created", "update_time": "updated", "start_time": "started", "end_time": "ended"}
_FIELDS = (_NAME, _STATE, *_TIMES, _LABELS)

_KEY = re.compile(r"[^\s()\"'=!<>:.,]+")
_OPERATOR = re.compile(r"<=|>=|!=|[=<>:]")


def parse(text: str) -> Query:
    """Raises Invalid with the position of the error."""
    return JobFilterParser(text).parse()


class JobFilterParser(Parser[Query]):
    FIELDS: tuple[str, ...] = _FIELDS

    def compare(self, field: str, op: Operator, value: Value, at: int) -> Query:
        """A comparison of a field other than labels. `at` is the position of the operator."""
        if field == _NAME:
            return _name(op, value, at)
        return _state(op, value, at) if field == _STATE else _time(field, op, value, at)

    def all_of(self, parts: list[Query]) -> Query:
        return All(*parts)

    def any_of(self, parts: list[Query]) -> Query:
        return Any(*parts)

    def negation(self, part: Query) -> Query:
        return Not(part)

    def restriction(self) -> Query:
        start = self._at
        word = None if self._peek("AND") or self._peek("OR") else self._match(WORD)
        if word is None:
            raise self._invalid('expected a field, as in state="JOB_STATE_RUNNING"')
        field = snake(word[0])
        if field not in self.FIELDS:
            raise invalid(start, f"{quoted(word[0])} is not a field to filter by; {self._hint(field)}")
        key = self._label_key() if field == _LABELS else None
        self._skip()
        at = self._at
        operator = self._match(_OPERATOR)
        if operator is None:
            raise self._invalid(f"{word[0]} must be compared by one of = != < <= > >= :")
        self._skip()
        op, value = cast("Operator", operator[0]), self._value()
        self._skip()
        if field == _LABELS:
            return _label(key, op, value, at)
        return self.compare(field, op, value, at)

    def _hint(self, field: str) -> str:
        close = difflib.get_close_matches(field[:100], self.FIELDS, 1)
        return f"did you mean {close[0]}?" if close else f"use one of {', '.join(self.FIELDS)}"

    def _label_key(self) -> str | None:
        """Of `labels.key` or `labels."key"`; None for `labels` alone."""
        if not self._text.startswith(".", self._at):
            return None
        self._at += 1
        if (quoted := self._quoted()) is not None:
            return quoted
        key = self._match(_KEY)
        if key is None:
            raise self._invalid("expected a label's key, as in labels.team=vision")
        return key[0]


def _name(op: Operator, value: Value, at: int) -> Query:
    if op in ("=", "!="):
        return Compare("name", op, value.text)
    if op != ":":
        raise invalid(at, f"{_NAME} takes = != and :, not {op}")
    if not value.text.strip("*"):
        return All()
    inner, kind = _pattern(value.text)
    return Compare("name", kind, inner)


def _label(key: str | None, op: Operator, value: Value, at: int) -> Query:
    if key is None:
        if op != ":":
            raise invalid(at, "labels needs a key, as in labels.team=vision or labels:team")
        return Label(LABEL_PREFIX + value.text, "!=", None)
    return label_test(LABEL_PREFIX + key, f"labels.{key}", op, value, at)


def label_test(stored: str, field: str, op: Operator, value: Value, at: int) -> Query:
    """A comparison of a field that is stored as a label."""
    if op in ("=", "!="):
        return Label(stored, op, value.text)
    if op != ":":
        raise invalid(at, f"{field} takes = != and :, not {op}")
    if not value.text.strip("*"):
        return Label(stored, "!=", None)
    inner, kind = _pattern(value.text)
    return Label(stored, kind, inner)


def _pattern(text: str) -> tuple[str, Literal["contains", "like"]]:
    """For a pattern that has other characters than `*`."""
    if "*" not in text:
        return text, "contains"
    inner = text.strip("*")
    if text.startswith("*") and text.endswith("*") and "*" not in inner:
        return inner, "contains"
    return text, "like"


def _state(op: Operator, value: Value, at: int) -> Query:
    if op not in ("=", "!="):
        raise invalid(at, f"{_STATE} takes = and !=, not {op}")
    matching = has_state(_job_state(value))
    return matching if op == "=" else Not(matching)


def has_state(wanted: JobState) -> Query:
    """The jobs for which `render.state` returns this state."""
    matching: list[Query] = [
        Compare("state", "=", ours.value) for ours, theirs in STATES.items() if theirs is wanted
    ]
    cancelled = Compare("reason", "=", Reason.STOPPED.value)
    if wanted is JobState.JOB_STATE_CANCELLING:
        return All(*matching, cancelled)
    if wanted in (JobState.JOB_STATE_PENDING, JobState.JOB_STATE_RUNNING):
        begun = "=" if wanted is JobState.JOB_STATE_PENDING else "!="
        ending = Compare("state", "=", State.STOPPING.value)
        matching.append(All(ending, Not(cancelled), Compare("started", begun, None)))
    return Any(*matching)


def _job_state(value: Value) -> JobState:
    text = value.text
    if text in JobState.__members__:
        return JobState[text]
    if re.fullmatch("[0-9]{1,2}", text) and int(text) in {state.value for state in JobState}:
        return JobState(int(text))
    known = ", ".join(state.name for state in STATES.values())
    raise invalid(value.at, f"{quoted(text)} is not a state; use one of {known}")


def _time(field: str, op: Operator, value: Value, at: int) -> Query:
    column = _TIMES[field]
    if op == ":":
        if value.text != "*":
            raise invalid(at, f"{field} takes = != < <= > >=, and :* for jobs that have one")
        return Compare(column, "!=", None)
    parsed = parse_time(value.text)
    if parsed is None:
        raise invalid(value.at, f'{quoted(value.text)} must be a time such as "2014-10-02T15:01:23Z"')
    return Compare(column, op, parsed)
