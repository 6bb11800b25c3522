"""Query → SQL, against the same tree read by Python."""

import fnmatch
import operator
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any as Anything

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.store.samples import job
from turnout.errors import Invalid
from turnout.job import All, Any, Compare, Job, Label, Not, Page, Query, Reason, State
from turnout.job.query import FIELDS
from turnout.store import migrate, postgres, rows
from turnout.store.statements import POSTGRES, SQLITE, Flavour, Statements
from turnout.store.where import DEEPEST, MOST_CONDITIONS, MOST_VALUES, Selection

HOLDS: dict[str, Callable[[Anything, Anything], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "contains": operator.contains,
    "like": lambda value, pattern: fnmatch.fnmatchcase(value, re.sub(r"([\[?])", r"[\1]", pattern)),
}


def holds(query: Query, one: Job) -> bool:
    match query:
        case All():
            return all(holds(part, one) for part in query)
        case Any():
            return any(holds(part, one) for part in query)
        case Not(inner):
            return not holds(inner, one)
        case Compare(field, op, value):
            return compared(getattr(one, field), op, value)
        case Label(key, op, value):
            return compared(LABELS[one.id].get(key), op, value)


def compared(held: Anything, op: str, value: Anything) -> bool:
    match op:
        case "=":
            return held == value
        case "!=":
            return held != value
        case "in":
            return held is not None and held in value
        case _:
            return held is not None and HOLDS[op](held, value)


TEXTS = [
    "",
    "a",
    "A",
    "b",
    "ab",
    "%",
    "_",
    "a%b",
    "a_b",
    "\\",
    "\\%",
    "é",
    "e",
    "训练",
    "训",
    "\U0001f682",
    "\n",
    "'",
    '"',
    "?",
    "%s",
    "a\x01",
    "a\ud7ff",
    "a\ue000",
    "a\U00010000",
]
NUMBERS = [-(1 << 63), -1, 0, 1, 2, 3, 10**18, (1 << 63) - 1]
TEXT_FIELDS = ["project", "dialect", "scope", "handle", "name", "cluster"]
NUMBER_FIELDS = ["id", "priority", "created", "updated", "started", "ended", "deleted"]


def population() -> list[Job]:
    jobs: list[Job] = []
    for number in range(60):
        one = job(TEXTS[number % len(TEXTS)], project=TEXTS[number % 3], scope=f"scope-{number}")
        one.cluster = TEXTS[-1 - number % 7]
        one.state = list(State)[number % len(State)]
        one.reason = [None, *Reason][number % (len(Reason) + 1)]
        one.priority, one.created = NUMBERS[number % len(NUMBERS)], NUMBERS[number % 5]
        one.started, one.ended, one.deleted = ([None, *NUMBERS][(number + shift) % 9] for shift in range(3))
        jobs.append(one)
    return jobs


JOBS = population()
KEYS = ["kind", "tag:训练", "tag:a", ""]
LABELS = {
    one.id: {
        key: TEXTS[(number + place) % len(TEXTS)] for place, key in enumerate(KEYS) if number >> place & 1
    }
    for number, one in enumerate(JOBS)
}
LABEL_ROWS = [row for one in JOBS for row in rows.label_rows(one.id, LABELS[one.id])]

texts = (
    st.sampled_from(TEXTS)
    | st.text(max_size=3)
    | st.text(st.sampled_from("ab\0\x01\ud7ff\ud800\udfff\ue000"), max_size=3)  # some that no row can hold
)
numbers = (
    st.sampled_from(NUMBERS) | st.integers(-(1 << 65), 1 << 65) | st.sampled_from([one.id for one in JOBS])
)
orders = ["=", "!=", "<", "<=", ">", ">="]


def compares(
    fields: list[str], values: st.SearchStrategy[Anything], ops: list[str]
) -> st.SearchStrategy[Compare]:
    single = st.builds(Compare, st.sampled_from(fields), st.sampled_from(ops), values)
    several = st.builds(
        Compare, st.sampled_from(fields), st.just("in"), st.lists(values, max_size=4).map(tuple)
    )
    missing = st.builds(Compare, st.sampled_from(fields), st.sampled_from(["=", "!="]), st.none())
    return single | several | missing


keys = st.sampled_from(KEYS) | texts
labels = (
    st.builds(Label, keys, st.sampled_from(["=", "!=", "contains"]), texts)
    | st.builds(Label, keys, st.just("in"), st.lists(texts, max_size=4).map(tuple))
    | st.builds(Label, keys, st.sampled_from(["=", "!="]), st.none())
)

patterns = st.lists(texts, min_size=1, max_size=4).map("*".join)
leaves = (
    labels
    | st.builds(Label, keys, st.just("like"), patterns)
    | compares(TEXT_FIELDS, patterns, ["like"])
    | st.builds(Compare, st.just("state"), st.just("like"), patterns)
    | compares(TEXT_FIELDS, texts, [*orders, "contains"])
    | compares(NUMBER_FIELDS, numbers, orders)
    | compares(["state"], st.sampled_from(State) | texts, [*orders, "contains"])
    | compares(["reason"], st.sampled_from(Reason) | texts, [*orders, "contains"])
)
queries = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda parts: All(*parts))
        | st.lists(inner, max_size=3).map(lambda parts: Any(*parts))
        | inner.map(Not)
    ),
    max_leaves=8,
)

Run = Callable[[str, tuple[Anything, ...]], list[tuple[Anything, ...]]]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Flavour, Run]]:
    if request.param == "sqlite":
        path: Path = tmp_path_factory.mktemp("where") / "turnout.db"
        migrate.open_sqlite(path)
        connection = sqlite3.connect(path, isolation_level=None)
        connection.executemany(Statements(SQLITE).insert_job, map(rows.job_row, JOBS))
        connection.executemany(Statements(SQLITE).insert_label, LABEL_ROWS)
        yield SQLITE, lambda sql, values: connection.execute(sql, values).fetchall()
        connection.close()
    else:
        url = request.getfixturevalue("postgres").database()
        with postgres.open_locked(url) as connection:
            connection.cursor().executemany(Statements(POSTGRES).insert_job, list(map(rows.job_row, JOBS)))  # type: ignore[arg-type]
            connection.cursor().executemany(Statements(POSTGRES).insert_label, LABEL_ROWS)  # type: ignore[arg-type]
            yield POSTGRES, lambda sql, values: connection.execute(sql, values).fetchall()  # type: ignore[arg-type]


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=queries)
@example(query=Compare("name", "contains", "%"))
@example(query=Compare("name", "contains", "_"))
@example(query=Compare("name", "contains", "\\"))
@example(query=Compare("name", "contains", "a\0"))
@example(query=Compare("name", "like", "*"))
@example(query=Compare("name", "like", "a*%"))
@example(query=Compare("name", "like", "*_*"))
@example(query=Compare("name", "like", "*\\*"))
@example(query=Compare("name", "like", "*[*"))
@example(query=Compare("name", "like", "?**"))
@example(query=Compare("name", "<", "a\0b"))
@example(query=Compare("name", ">=", "a\udfff"))
@example(query=Not(Compare("started", "<", 3)))
@example(query=Compare("state", "in", (State.QUEUED, State.RUNNING)))
@example(query=All(Label("kind", "=", "a"), Not(Label("tag:a", "!=", "b"))))
@example(query=Label("kind", "=", None))
@example(query=Label("kind", "!=", None))
@example(query=Not(Label("kind", "in", ())))
@example(query=Label("a\0", "!=", "a"))
@example(
    query=All(Compare("project", "=", "a"), Compare("scope", "=", "scope-1"), Compare("deleted", "=", None))
)
def test_finds_what_python_would(database: tuple[Flavour, Run], query: Query):
    flavour, run = database
    expected = [one for one in JOBS if holds(query, one)]
    selection = Selection(query, flavour)
    found = run(*selection.page(Page(100, descending=False)))
    assert [rows.job_of(row) for row in found] == expected
    assert run(*selection.count()) == [(len(expected),)]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    query=queries,
    limit=st.integers(0, 70),
    offset=st.integers(0, 70),
    before_id=st.none() | st.sampled_from([one.id for one in JOBS]),
    order_by=st.sampled_from(sorted(FIELDS - {"state", "reason"})),
    descending=st.booleans(),
)
def test_pages_as_python_would(
    database: tuple[Flavour, Run],
    query: Query,
    limit: int,
    offset: int,
    before_id: int | None,
    order_by: str,
    descending: bool,
):
    flavour, run = database

    def place(one: Job) -> tuple[Anything, ...]:
        value = getattr(one, order_by)
        return value is not None, value if value is not None else 0, one.id

    matching = [one for one in JOBS if holds(query, one) and (before_id is None or one.id < before_id)]
    expected = sorted(matching, key=place, reverse=descending)[offset : offset + limit]
    page = Page(limit, offset, before_id, order_by, descending)
    found = run(*Selection(query, flavour).page(page))
    assert [rows.job_of(row) for row in found] == expected


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        (Compare("name", "=", 3), "name is compared with 3, which is not of type str"),
        (Compare("created", "<", "3"), "created is compared with '3', which is not of type int"),
        (Compare("created", "contains", 3), "created is a number and contains nothing"),
        (Compare("name", "in", "abc"), "a tuple belongs to `in`"),
        (Compare("name", "=", ("a", "b")), "a tuple belongs to `in`"),
        (Compare("started", "<", None), "= and != can"),
        (Label("kind", "in", None), "None is compared by = and !="),
        (Label("kind", "in", "job"), "a tuple belongs to `in`"),
        (Label("kind", "=", ("job",)), "a tuple belongs to `in`"),
    ],
)
def test_a_value_of_the_wrong_type_is_a_bug_of_the_dialect(query: Query, complaint: str):
    with pytest.raises(ValueError, match=complaint):
        Selection(query, SQLITE)


def test_a_filter_too_large_for_a_database_is_the_callers_fault():
    with pytest.raises(Invalid):
        Selection(Any(*[Compare("id", "=", 1)] * (MOST_CONDITIONS + 1)), SQLITE)
    with pytest.raises(Invalid):
        Selection(Compare("id", "in", tuple(range(MOST_VALUES + 1))), SQLITE)
    with pytest.raises(Invalid, match="deep"):
        Selection(nested(DEEPEST + 1, All), SQLITE)


def nested(depth: int, *kinds: type[All] | type[Any] | type[Not]) -> Query:
    query: Query = Label("key", "!=", "no such value")
    for level in range(depth):
        kind = kinds[level % len(kinds)]
        query = Not(query) if kind is Not else kind(Label("key", "!=", "none"), query)  # type: ignore[arg-type]
    return query


@pytest.mark.parametrize("kinds", [(All,), (Any,), (All, Any), (Not,), (Not, Any)])
def test_the_deepest_filter_works(database: tuple[Flavour, Run], kinds: tuple[type, ...]):
    flavour, run = database
    query = nested(DEEPEST, *kinds)
    expected = sum(holds(query, one) for one in JOBS)
    assert run(*Selection(query, flavour).count()) == [(expected,)]
    assert len(run(*Selection(query, flavour).page(Page(limit=1000, before_id=1 << 62)))) == expected


def test_the_largest_filter_works(database: tuple[Flavour, Run]):
    flavour, run = database
    many = Any(
        *[Compare("id", "=", number) for number in range(MOST_CONDITIONS - 1)], Compare("id", "=", JOBS[0].id)
    )
    assert run(*Selection(many, flavour).count()) == [(1,)]
    among = Compare("id", "in", (*range(MOST_VALUES - 1), JOBS[0].id))
    assert run(*Selection(among, flavour).count()) == [(1,)]
    labelled = [Label(f"key-{number}", "=", "a") for number in range(MOST_CONDITIONS - 1)]
    assert run(*Selection(Any(*labelled, Compare("id", "=", JOBS[0].id)), flavour).count()) == [(1,)]
