"""Compiles a filter for one job: conditions that all entries of the job share are evaluated once."""

import operator
from collections.abc import Callable
from functools import cache
from typing import Any

from turnout.dialects.vertex.cloud_logging.log_entry import Entry
from turnout.dialects.vertex.cloud_logging.log_filter import (
    SEVERITIES,
    SEVERITY,
    TIMES,
    And,
    Comparison,
    Filter,
    Negation,
    Operator,
    Or,
    Path,
)
from turnout.job import Job

Match = Callable[[Entry], bool]
_Test = Callable[[Entry, str | None], bool]
"""The second argument is the entry's text in lower case; None if the entry has a payload."""

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_RANKS = {name: rank for rank, name in enumerate(SEVERITIES)}


def matcher(condition: Filter, job: Job) -> Match:
    test = _test(condition, job)
    if isinstance(test, bool):
        return lambda entry: test

    def match(entry: Entry) -> bool:
        return test(entry, entry.text.lower() if entry.payload is None else None)

    return match


def _test(condition: Filter, job: Job) -> _Test | bool:
    match condition:
        case And(parts):
            return _all_of([_test(part, job) for part in parts])
        case Or(parts):
            negated = _all_of([_negate(_test(part, job)) for part in parts])
            return _negate(negated)
        case Negation(part):
            return _negate(_test(part, job))
        case Comparison():
            return _comparison(condition, job)


def _all_of(tests: list[_Test | bool]) -> _Test | bool:
    if any(test is False for test in tests):
        return False
    undecided = [test for test in tests if not isinstance(test, bool)]
    if len(undecided) < 2:
        return undecided[0] if undecided else True

    def all_of(entry: Entry, text: str | None) -> bool:
        for test in undecided:  # noqa: SIM110 (a generator would take twice the time)
            if not test(entry, text):
                return False
        return True

    return all_of


def _negate(test: _Test | bool) -> _Test | bool:
    if isinstance(test, bool):
        return not test
    return lambda entry, text: not test(entry, text)


def _comparison(comparison: Comparison, job: Job) -> _Test | bool:
    path, op, value = comparison.path, comparison.op, comparison.value
    if isinstance(value, int):
        compared = _OPERATORS[op]
        if path[0] in TIMES:
            return lambda entry, text: compared(entry.at, value)
        return lambda entry, text: compared(_RANKS[entry.severity], value)
    wanted = value.lower()
    match path:
        case ("textPayload",):
            return _text_test(op, wanted)
        case ("jsonPayload", *rest):
            return lambda entry, text: _compare(_lookup(entry.payload, tuple(rest)), op, wanted)
        case ("insertId",):
            return lambda entry, text: _compare(entry.id, op, wanted)
        case _ if path[0] in TIMES or path == SEVERITY:
            return lambda entry, text: _compare(_lookup(entry.document(job), path), op, wanted)
        case _:
            # The other fields are the same for all entries of one task.
            @cache
            def of_task(task: str) -> bool:
                return _compare(_lookup(Entry(0, "", task, "DEFAULT", "").document(job), path), op, wanted)

            return lambda entry, text: of_task(entry.task)


def _text_test(op: Operator, wanted: str) -> _Test:
    if op == ":" and wanted == "*":
        return lambda entry, text: text is not None
    if op == ":":
        return lambda entry, text: text is not None and wanted in text
    if op == "!=":
        return lambda entry, text: text != wanted
    compared = _OPERATORS[op]
    return lambda entry, text: text is not None and compared(text, wanted)


def _lookup(value: Any, path: Path) -> Any:
    """None if the field does not exist."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _compare(value: Any, op: Operator, wanted: str) -> bool:
    if op == ":" and wanted == "*":
        return value is not None
    if value is None or isinstance(value, dict | list):
        # As in Cloud Logging: a missing field differs from every value, and is neither larger nor smaller.
        return op == "!="
    text = str(value).lower()
    return wanted in text if op == ":" else _OPERATORS[op](text, wanted)
