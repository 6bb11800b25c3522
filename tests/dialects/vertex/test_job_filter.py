"""Filters: the examples of the reference, the grammar, and every filter against a plain reading of it."""

import contextlib
import fnmatch
import re
from collections.abc import Callable
from typing import Any as Anything
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.dialects.vertex import job_filter
from turnout.dialects.vertex.protobuf.times import parse_time, spell_time
from turnout.errors import Invalid, TurnoutError
from turnout.job import All, Any, Compare, Label, Not, Query, State

NAME = Compare("name", "=", "my_job")


CANCELLED = Compare("reason", "=", "stopped")


def state(state: State) -> Query:
    """As it is shown: a gang that is ended without a cancel still runs, if it ever did."""
    held = Compare("state", "=", state.value)
    if state is State.STOPPING:
        return All(held, CANCELLED)
    if state not in (State.PREPARING, State.RUNNING):
        return Any(held)
    begun = Compare("started", "=" if state is State.PREPARING else "!=", None)
    return Any(held, All(Compare("state", "=", "stopping"), Not(CANCELLED), begun))


RUNNING, QUEUED = state(State.RUNNING), state(State.QUEUED)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("", All()),
        ("  ", All()),
        (
            'state="JOB_STATE_SUCCEEDED" AND display_name:"my_job_*"',
            All(state(State.SUCCEEDED), Compare("name", "like", "my_job_*")),
        ),
        ('state!="JOB_STATE_FAILED" OR display_name="my_job"', Any(Not(state(State.FAILED)), NAME)),
        ('NOT display_name="my_job"', Not(NAME)),
        ("-displayName=my_job", Not(NAME)),
        ("NOT NOT display_name = 'my_job'", NAME),
        ('create_time>"2021-05-18T00:00:00Z"', Compare("created", ">", 1_621_296_000_000_000_000)),
        ("createTime <= 2021-05-18T02:00:00.5+02:00", Compare("created", "<=", 1_621_296_000_500_000_000)),
        ("end_time:*", Compare("ended", "!=", None)),
        ("labels.team=vision", Label("label:team", "=", "vision")),
        ("labels.my-key != 'a b'", Label("label:my-key", "!=", "a b")),
        ('labels."team":*', Label("label:team", "!=", None)),
        ("labels:team", Label("label:team", "!=", None)),
        ("labels.团队:视*", Label("label:团队", "like", "视*")),
        ("state=3", state(State.RUNNING)),
        ("state=JOB_STATE_CANCELLING", state(State.STOPPING)),
        ("state=JOB_STATE_PAUSED", Any()),
        ("display_name:x", Compare("name", "contains", "x")),
        ('display_name:"*x*"', Compare("name", "contains", "x")),
        ("display_name:*", All()),
        (r'display_name="say \"hi\" \\ now"', Compare("name", "=", r'say "hi" \ now')),
        ("display_name=my_job state=3", All(NAME, state(State.RUNNING))),
        # OR binds tighter than AND, as in all of Google's filters.
        ("state=3 AND state=2 OR state=1", All(RUNNING, Any(state(State.PREPARING), QUEUED))),
        ("(state=3 AND state=2) OR state=1", Any(All(RUNNING, state(State.PREPARING)), QUEUED)),
        ("((state=3))", state(State.RUNNING)),
        ("not(display_name=my_job)or state=3", Any(Not(NAME), state(State.RUNNING))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_filter(text: str, query: Query):
    assert job_filter.parse(text) == query


@pytest.mark.parametrize(
    ("text", "at", "told"),
    [
        ("state", 6, "state must be compared by one of"),
        ("state=", 7, "expected a value"),
        ('display_name="x', 14, 'this " is not closed'),
        ("(state=3", 1, "this ( is not closed"),
        ("state=3)", 8, "no matching ("),
        ("state=3 AND", 12, "expected a field"),
        ("state=3 OR OR state=2", 12, "expected a field"),
        ("AND state=3", 1, "expected a field"),
        ('"x"', 1, "expected a field"),
        ("displayname=x", 1, "did you mean display_name?"),
        ("job_spec=x", 1, "use one of display_name, state"),
        ("state=RUNNING", 7, "JOB_STATE_RUNNING"),
        ("state>3", 6, "takes = and !="),
        ("state=99", 7, "is not a state"),
        ("display_name<x", 13, "takes = != and :"),
        ("create_time>yesterday", 13, "2014-10-02T15:01:23Z"),
        ('create_time>"2021-05-18 00:00:00Z"', 13, "must be a time"),
        ('create_time>"2021-13-18T00:00:00Z"', 13, "must be a time"),
        ("create_time:2021", 12, "takes = != < <= > >="),
        ("labels=x", 7, "labels needs a key"),
        ("labels.=x", 8, "expected a label's key"),
        ("labels.a<x", 9, "takes = != and :"),
        ("state=3 , state=2", 9, "expected a field"),
        ("(" * 60 + "state=3" + ")" * 60, 52, "parentheses"),
    ],
)
def test_a_wrong_filter(text: str, at: int, told: str):
    with pytest.raises(Invalid) as raised:
        job_filter.parse(text)
    assert raised.value.field == "filter"
    assert f"at character {at}:" in raised.value.message
    assert told in raised.value.message


def test_a_very_long_filter():
    with pytest.raises(Invalid, match="longer than"):
        job_filter.parse("state=3 OR " * 10_000)
    with pytest.raises(Invalid, match="more than 500 conditions"):
        job_filter.parse("state=3 " * 501)


@given(st.text() | st.text(alphabet="()-=!<>:*.\"'\\ aANDORNOTlabelsstate3,_"))
def test_nothing_but_our_errors(text: str):
    with contextlib.suppress(TurnoutError):
        job_filter.parse(text)


class Row(NamedTuple):
    name: str
    state: str
    created: int
    ended: int | None
    started: int | None
    reason: str | None
    labels: dict[str, str]

    @property
    def shown(self) -> str:
        if self.state == "stopping" and self.reason != "stopped":
            return "JOB_STATE_PENDING" if self.started is None else "JOB_STATE_RUNNING"
        return job_filter.STATES[State(self.state)].name


Test = Callable[[Row], bool]
AND, OR = " AND ", " OR "


class Case(NamedTuple):
    """A filter as text, and what it means, each made without the other."""

    text: str
    test: Test


names = st.text(alphabet='ab*"\\ é', max_size=4)
times = st.integers(0, 5).map(lambda number: number * 10**9 + 7)
rows = st.builds(
    Row,
    st.text(alphabet='ab"\\ é', max_size=4),
    st.sampled_from([state.value for state in State]),
    times,
    st.none() | times,
    st.none() | times,
    st.sampled_from([None, "stopped", "preempted"]),
    st.dictionaries(st.sampled_from(["k", "l-1"]), st.text(alphabet="ab", max_size=2)),
)


def quoted(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def matches(pattern: str, text: str) -> bool:
    if "*" not in pattern:
        return pattern in text
    return fnmatch.fnmatchcase(text, pattern.replace("[", "[[]").replace("?", "[?]"))


SIGNS: dict[str, Callable[[Anything, Anything], bool]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a is not None and a < b,
    "<=": lambda a, b: a is not None and a <= b,
    ">": lambda a, b: a is not None and a > b,
    ">=": lambda a, b: a is not None and a >= b,
}


def about_time(field: str, column: str) -> st.SearchStrategy[Case]:
    return st.builds(
        lambda sign, at: Case(
            f'{field} {sign} "{spell_time(at)}"', lambda row: SIGNS[sign](getattr(row, column), at)
        ),
        st.sampled_from(sorted(SIGNS)),
        times,
    )


one = st.one_of(
    st.builds(
        lambda sign, name: Case(f"display_name{sign}{quoted(name)}", lambda row: SIGNS[sign](row.name, name)),
        st.sampled_from(["=", "!="]),
        names,
    ),
    names.map(lambda name: Case(f"displayName:{quoted(name)}", lambda row: matches(name, row.name))),
    st.sampled_from(list(job_filter.STATES.values())).map(
        lambda state: Case(f"state={state.name}", lambda row: row.shown == state.name)
    ),
    about_time("create_time", "created"),
    about_time("endTime", "ended"),
    st.builds(
        lambda key, value: Case(f"labels.{key}={quoted(value)}", lambda row: row.labels.get(key) == value),
        st.sampled_from(["k", "l-1"]),
        st.text(alphabet="ab", max_size=2),
    ),
    st.sampled_from(["k", "l-1"]).map(lambda key: Case(f"labels.{key}:*", lambda row: key in row.labels)),
)


def joined(cases: list[Case], word: str, join: Callable[[list[bool]], bool]) -> Case:
    text = word.join(f"({case.text})" for case in cases)
    return Case(text, lambda row: join([case.test(row) for case in cases]))


filters = st.recursive(
    one,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda cases: joined(cases, AND, all)),
        st.lists(inner, min_size=2, max_size=3).map(lambda cases: joined(cases, " ", all)),
        st.lists(inner, min_size=2, max_size=3).map(lambda cases: joined(cases, OR, any)),
        inner.map(lambda case: Case(f"NOT ({case.text})", lambda row: not case.test(row))),
        inner.map(lambda case: Case(f"-({case.text})", lambda row: not case.test(row))),
    ),
    max_leaves=8,
)


def holds(query: Query, row: Row) -> bool:
    """A Query read as Python would, as the store promises to."""
    match query:
        case All():
            return all(holds(part, row) for part in query)
        case Any():
            return any(holds(part, row) for part in query)
        case Not(inner):
            return not holds(inner, row)
        case Label(key, op, value):
            return compare(row.labels.get(key.removeprefix("label:")), op, value)
        case Compare(field, op, value):
            return compare(getattr(row, field), op, value)


def compare(held: Anything, op: str, value: Anything) -> bool:
    if op == "contains":
        return held is not None and value in held
    if op == "like":
        return held is not None and matches(value, held)
    return SIGNS[op](held, value)


@given(filters, rows)
def test_a_filter_means_what_it_says(case: Case, row: Row):
    assert holds(job_filter.parse(case.text), row) == case.test(row), case.text


@given(st.integers(-62_135_596_800 * 10**9, 253_402_300_799 * 10**9))
def test_every_time_can_be_asked_for(at: int):
    assert parse_time(spell_time(at)) == at
