"""Translates a Query to SQL that matches exactly the jobs for which the query is true in Python's sense:

None equals only None, is neither smaller nor larger than any value, and is in no list; texts compare by code points;
`contains` is case-sensitive.
"""

import operator
import re
from collections.abc import Callable, Iterator
from typing import Any as Anything

from turnout.errors import Invalid
from turnout.job import All, Any, Compare, Label, Not, Page, Query
from turnout.store.codes import FIRST_ENDED, REASONS, STATES
from turnout.store.rows import Row, storable
from turnout.store.statements import JOB, LIVE, Flavour, names

MOST_CONDITIONS = 500
MOST_VALUES = 10_000
"""The limits are 1000 levels in SQLite and 65 535 parameters in PostgreSQL."""
DEEPEST = 20
"""SQLite's parser has a stack of 100 entries, and each level takes three."""
MOST_STARS = 8
"""Each `*` can multiply the time of a comparison by the length of the text."""

_TRUE, _FALSE = "1 = 1", "1 = 0"
_CODED = {"state": STATES, "reason": REASONS}
_TEXT = frozenset({"project", "dialect", "scope", "handle", "name", "cluster", "owner"})
_NULLABLE = frozenset({"started", "ended", "deleted", "reason"})
_MATCHES: dict[str, Callable[[Anything, Anything], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, among: value in among,
    "contains": operator.contains,
    "like": lambda value, pattern: bool(_regex(pattern).fullmatch(value)),
}


class Selection:
    """The SQL of one query, and its parameters: for a page of the jobs, and for their number."""

    def __init__(self, query: Query, flavour: Flavour) -> None:
        self._flavour = flavour
        self._conditions = 0
        self._values: list[str | int] = []
        self.condition = self._of(query)
        self.plain = self._conditions == 3 and _pinned(query) == {"project", "scope", "deleted"}
        """Whether the index for lists answers the query alone, in the order of ids."""
        self._live = _only_live(query)

    def page(self, page: Page) -> tuple[str, Row]:
        mark = self._flavour.mark
        where, values = self._where(), list(self._values)
        if page.before_id is not None:
            where += f" AND id < {mark}"
            values.append(fit_integer(page.before_id))
        sql = (
            f"SELECT {names(JOB)} FROM jobs{self._access(self.plain and page.order_by == 'id')} WHERE {where}"
            f" ORDER BY {_order(page)} LIMIT {mark} OFFSET {mark}"
        )
        return sql, (*values, fit_integer(page.limit), fit_integer(page.offset))

    def count(self) -> tuple[str, Row]:
        return f"SELECT count(*) FROM jobs{self._access(self.plain)} WHERE {self._where()}", tuple(
            self._values
        )

    def _where(self) -> str:
        return f"({self.condition}) AND {LIVE}" if self._live else f"({self.condition})"

    def _access(self, indexed: bool) -> str:
        """Keeps SQLite from using an index if most rows are read anyway, which would take four times as long."""
        return "" if indexed or self._live else self._flavour.by_id

    def _of(self, query: Query, depth: int = 0) -> str:
        if depth > DEEPEST:
            raise Invalid(f"the filter has conditions within conditions, more than {DEEPEST} deep")
        match query:
            case Compare():
                return self._compare(query)
            case Label():
                return self._label(query)
            case Not(inner):
                return f"NOT ({self._of(inner, depth + 1)})"
            case All():
                return " AND ".join(f"({self._of(part, depth + 1)})" for part in query) or _TRUE
            case Any():
                return " OR ".join(f"({self._of(part, depth + 1)})" for part in query) or _FALSE

    def _label(self, label: Label) -> str:
        self._count_condition()
        _check_label(label)
        negative = (label.op == "!=") != (label.value is None)
        if not storable(label.key):
            return _TRUE if negative else _FALSE
        # Starts with the few labels that match and looks up their jobs, not the other way round.
        having = f"SELECT job FROM labels WHERE key = {self._mark(label.key)} AND {self._held(label)}"
        return f"id {'NOT IN' if negative else 'IN'} ({having})"

    def _held(self, label: Label) -> str:
        match label.op:
            case _ if label.value is None:
                return _TRUE
            case "contains":
                return self._contains("value", label.value)
            case "like":
                return self._like("value", label.value)
            case "in":
                return self._among("value", label.value)
            case _:
                return self._ordered("value", "=", label.value)

    def _count_condition(self) -> None:
        self._conditions += 1
        if self._conditions > MOST_CONDITIONS:
            raise Invalid(f"the filter has more than {MOST_CONDITIONS} conditions")

    def _compare(self, compare: Compare) -> str:
        self._count_condition()
        column, op, value = compare.field, compare.op, compare.value
        if op == "!=":
            return f"NOT ({self._positive(column, '=', value)})"
        return self._positive(column, op, value)

    def _positive(self, column: str, op: str, value: str | int | tuple[str | int, ...] | None) -> str:
        """A condition that is never NULL, so that NOT negates it."""
        if value is None:
            if op != "=":
                raise ValueError(f"{column} cannot be compared with None by {op}; = and != can")
            return f"{column} IS NULL" if column in _NULLABLE else _FALSE
        _check(column, op, value)
        if column in _CODED:
            held = [str(code) for text, code in _CODED[column].items() if _MATCHES[op](str(text), value)]
            condition = f"{column} IN ({', '.join(held)})" if held else _FALSE
        elif op == "contains":
            condition = self._contains(column, value)
        elif op == "like":
            condition = self._like(column, value)
        elif op == "in":
            condition = self._among(column, value)
        else:
            condition = self._ordered(column, op, value)
        if column not in _NULLABLE or condition == _FALSE:
            return condition
        return f"({column} IS NOT NULL AND {condition})"

    def _contains(self, column: str, value: Anything) -> str:
        if not storable(value):
            return _FALSE
        return f"{self._flavour.find_text}({column}, {self._mark(value)}) > 0" if value else _TRUE

    def _like(self, column: str, value: Anything) -> str:
        value = re.sub(r"\*+", "*", value)
        if value.count("*") > MOST_STARS:
            raise Invalid(f"a pattern of the filter has more than {MOST_STARS} *")
        if not storable(value):
            return _FALSE
        return f"{column} {self._flavour.like} {self._mark(self._flavour.pattern(value))}"

    def _among(self, column: str, values: Anything) -> str:
        marks = [self._mark(value) for value in values if storable(value)]
        return f"{column} IN ({', '.join(marks)})" if marks else _FALSE

    def _ordered(self, column: str, op: str, value: Anything) -> str:
        if storable(value):
            return f"{column} {op} {self._mark(value)}"
        if op == "=":
            return _FALSE
        if isinstance(value, str):
            op, value = _nearest(op, value)
            return f"{column} {op} {self._mark(value)}"
        # The value is beyond the range of the column, so all numbers are on the same side of it.
        return _TRUE if _MATCHES[op](0, value) else _FALSE

    def _mark(self, value: str | int) -> str:
        self._values.append(value)
        if len(self._values) > MOST_VALUES:
            raise Invalid(f"the filter has more than {MOST_VALUES} values")
        return self._flavour.mark


def _check(column: str, op: str, value: object) -> None:
    """Raises ValueError: a wrong type here is a bug of the dialect, not an error of the user."""
    kind = str if column in _TEXT or column in _CODED else int
    if (op == "in") != isinstance(value, tuple):
        raise ValueError(f"{column} {op} {value!r}: a tuple belongs to `in`, and only to it")
    if not all(isinstance(element, kind) for element in (value if isinstance(value, tuple) else (value,))):
        raise ValueError(f"{column} is compared with {value!r}, which is not of type {kind.__name__}")
    if op in ("contains", "like") and kind is int:
        raise ValueError(f"{column} is a number and contains nothing")


def _check_label(label: Label) -> None:
    shown = f"the label {label.key} {label.op} {label.value!r}"
    if label.value is None and label.op not in ("=", "!="):
        raise ValueError(f"{shown}: None is compared by = and !=")
    if label.value is not None and (label.op == "in") != isinstance(label.value, tuple):
        raise ValueError(f"{shown}: a tuple belongs to `in`, and only to it")


def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


def _nearest(op: str, text: str) -> tuple[str, str]:
    """A comparison with storable text that has the same result for all storable texts."""
    unfit = re.search("[\0\ud800-\udfff]", text)
    assert unfit
    before = text[: unfit.start()]
    if unfit[0] == "\0":
        return ("<=" if op in ("<", "<=") else ">"), before
    return ("<" if op in ("<", "<=") else ">="), before + "\ue000"


def _pinned(query: Query) -> set[str]:
    """The fields that must equal a value. For `deleted` the value is None."""
    return {
        part.field
        for part in _compares(query)
        if part.op == "=" and (part.value is None) == (part.field == "deleted")
    }


def _only_live(query: Query) -> bool:
    """Whether only live jobs can match, so that their small index is sufficient."""
    for part in _compares(query):
        if part.field == "state" and part.op in ("=", "in"):
            wanted = part.value if isinstance(part.value, tuple) else (part.value,)
            codes = [code for state, code in STATES.items() if state in wanted]
            if all(code < FIRST_ENDED for code in codes):
                return True
    return False


def _compares(query: Query) -> Iterator[Compare]:
    """The comparisons that must all be true."""
    if isinstance(query, Compare):
        yield query
    elif isinstance(query, All):
        for part in query:
            yield from _compares(part)


def fit_integer(number: int) -> int:
    """The nearest number that a column can hold."""
    return max(0, min(number, (1 << 63) - 1))


def _order(page: Page) -> str:
    """The ORDER BY clause. NULL is the smallest value in both databases."""
    if page.order_by not in JOB:
        raise ValueError(f"{page.order_by} is not a field of a job")
    direction, nulls = ("DESC", "LAST") if page.descending else ("ASC", "FIRST")
    if page.order_by == "id":
        return f"id {direction}"
    return f"{page.order_by} {direction}{f' NULLS {nulls}' if page.order_by in _NULLABLE else ''}, id {direction}"
