"""Parses the request for the list of training jobs into a Query and a page."""

import ipaddress
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from turnout.dialects.modelarts import times
from turnout.dialects.modelarts.errors import (
    BAD_FILTER_KEY,
    BAD_FILTER_OPERATOR,
    BAD_FILTER_VALUE,
    BAD_FILTERS,
    INVALID,
    UNSUPPORTED_SORT,
)
from turnout.dialects.modelarts.jobs.phases import PHASES, in_phase
from turnout.dialects.modelarts.names import DEFAULT_WORKSPACE, scope_of
from turnout.dialects.modelarts.observe.tasks import HOST_IP
from turnout.errors import Invalid
from turnout.job import All, Any, Compare, Label, Not, Page, Query, from_uuid

MAX_LIMIT = 50
MAX_FILTERS = 20
MAX_VALUES = 10
MAX_TAGS = 10
MAX_HOSTS = 10
SORT_BY = "create_time"
WINDOW = 31 * 86_400 * 1_000_000_000
"""The longest range of creation times for a list by tag or host."""
_MAX_OFFSET = 1 << 31


class Filter(msgspec.Struct):
    key: str | None = None
    operator: str | None = None
    value: list[str | int | float | None] | str | int | float | None = None


class Tag(msgspec.Struct):
    key: str | None = None
    values: list[str | None] | None = None


class ListRequest(msgspec.Struct):
    """The body of `POST /training-job-searches`."""

    offset: int | None = None
    limit: int | None = None
    sort_by: str | None = None
    order: str | None = None
    group_by: str | None = None
    workspace_id: str | None = None
    train_type: str | None = None
    tags: list[Tag] | None = None
    host_ips: list[str] | None = None
    filters: list[Filter] | None = None


class ListQuery(NamedTuple):
    query: Query
    page: Page
    limit: int
    offset: int
    """The number of the page, from 0."""
    order: str
    workspace: str


def parse(document: ListRequest, now: int) -> ListQuery:
    limit = _within("limit", document.limit, MAX_LIMIT, 1, MAX_LIMIT)
    offset = _within("offset", document.offset, 0, 0, _MAX_OFFSET)
    if document.sort_by not in (None, "", SORT_BY):
        raise Invalid(
            f"sort_by {document.sort_by!r} is not supported; jobs are sorted by {SORT_BY}.",
            field="sort_by",
            code=UNSUPPORTED_SORT,
        )
    order = (document.order or "desc").lower()
    if order not in ("asc", "desc"):
        raise _invalid("order", f"must be asc or desc, not {document.order!r}")
    workspace = document.workspace_id or DEFAULT_WORKSPACE
    page = Page(limit, offset * limit, order_by="id", descending=order == "desc")
    return ListQuery(_query(document, workspace, now), page, limit, offset, order, workspace)


def _query(document: ListRequest, workspace: str, now: int) -> Query:
    filters = document.filters or []
    if len(filters) > MAX_FILTERS:
        raise Invalid(
            f"filters has {len(filters)} conditions; at most {MAX_FILTERS} are allowed.",
            field="filters",
            code=BAD_FILTERS,
        )
    parts: list[Query] = [Compare("scope", "=", scope_of(workspace))]
    parts += [part for number, condition in enumerate(filters) for part in _condition(number, condition)]
    parts += _train_type(document.train_type)
    narrow = _tags(document.tags or []) + _hosts(document.host_ips or [])
    if narrow:
        parts += _window(filters, now)
    return All(*parts, *narrow)


def _condition(number: int, condition: Filter) -> list[Query]:
    """An empty list if the filter has no values: then it restricts nothing."""
    key, operator = condition.key or "", condition.operator or ""
    if key not in _KEYS:
        raise Invalid(
            f"filters[{number}].key {key!r} is not supported; use one of {', '.join(_KEYS)}.",
            field=f"filters[{number}].key",
            code=BAD_FILTER_KEY,
        )
    allowed = _KEYS[key].operators
    if operator not in allowed:
        raise Invalid(
            f"filters[{number}].operator {operator!r} is not supported for {key}; use {' or '.join(allowed)}.",
            field=f"filters[{number}].operator",
            code=BAD_FILTER_OPERATOR,
        )
    values = _texts(number, condition)
    if not any(values):
        return []
    field = f"filters[{number}].value"
    if operator == "between":
        return _between(field, key, values)
    found = Any(*(_KEYS[key].matches(field, operator, value) for value in values if value))
    return [Not(found) if operator == "not" else found]


def _texts(number: int, condition: Filter) -> list[str]:
    given = condition.value if isinstance(condition.value, list) else [condition.value]
    if len(given) > MAX_VALUES:
        raise _bad_value(
            f"filters[{number}].value", f"has {len(given)} values; at most {MAX_VALUES} are allowed"
        )
    return ["" if value is None else str(value).strip() for value in given]


def _between(field: str, key: str, values: list[str]) -> list[Query]:
    if len(values) != 2:
        raise _bad_value(field, "must be [from, to] for between; an empty string leaves that side open")
    column, read = _RANGES[key]
    low, high = (read(field, value) if value else None for value in values)
    if low is not None and high is not None and low > high:
        raise _bad_value(field, "must not have a first value that is larger than the second")
    sides: list[Query] = []
    if low is not None:
        sides.append(Compare(column, ">=", low))
    if high is not None:
        sides.append(Compare(column, "<=", high))
    return sides


def _time(field: str, text: str) -> int:
    at = times.parse(text)
    if at is None:
        raise _bad_value(field, f"must be times, {times.FORMS}, not {text!r}")
    return at


def _priority(field: str, text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise _bad_value(field, f"must be priorities, which are whole numbers, not {text!r}")
    return int(text)


def _by_name(_field: str, operator: str, value: str) -> Query:
    return Compare("name", "contains" if operator == "like" else "=", value)


def _by_id(_field: str, _operator: str, value: str) -> Query:
    job_id = from_uuid(value)
    return Any() if job_id is None else Compare("id", "=", job_id)


def _by_phase(field: str, _operator: str, value: str) -> Query:
    if value not in PHASES:
        raise _bad_value(field, f"must be phases, {', '.join(sorted(PHASES))}, not {value!r}")
    return in_phase(value)


def _by_priority(field: str, _operator: str, value: str) -> Query:
    return Compare("priority", "=", _priority(field, value))


def _by_label(key: str) -> Callable[[str, str, str], Query]:
    def matches(_field: str, operator: str, value: str) -> Query:
        return Label(key, "contains" if operator == "like" else "=", value)

    return matches


def _never(_field: str, _operator: str, _value: str) -> Query:
    return Any()


class _Key(NamedTuple):
    operators: tuple[str, ...]
    matches: Callable[[str, str, str], Query]
    """(field, operator, value) → the jobs with that value. `_condition` adds `between` and `not`."""


_TEXT = ("like", "in", "not")
_LABELS = (
    "kind",
    "algorithm_id",
    "algorithm_name",
    "pool_id",
    "user_id",
    "user_name",
    "runtime_type",
    "training_experiment_id",
)
_KEYS: dict[str, _Key] = {
    "name": _Key(_TEXT, _by_name),
    "id": _Key(("in", "not"), _by_id),
    "create_time": _Key(("between",), _never),
    "phase": _Key(("in", "not"), _by_phase),
    "priority": _Key(("in", "not", "between"), _by_priority),
    **{key: _Key(_TEXT, _by_label(key)) for key in _LABELS},
}
_RANGES: dict[str, tuple[str, Callable[[str, str], int]]] = {
    "create_time": ("created", _time),
    "priority": ("priority", _priority),
}


def _train_type(train_type: str | None) -> list[Query]:
    match train_type:
        case None | "":
            return []
        case "job":
            return [Label("train_type", "=", None)]
        case "ftjob":
            return [Label("train_type", "!=", None)]
        case _:
            raise _invalid("train_type", f"must be job or ftjob, not {train_type!r}")


def _tags(tags: list[Tag]) -> list[Query]:
    """A job must have one of the values of each key. A key without values matches any value."""
    if len(tags) > MAX_TAGS:
        raise _invalid("tags", f"has {len(tags)} conditions; at most {MAX_TAGS} are allowed")
    keys = [tag.key or "" for tag in tags]
    parts: list[Query] = []
    for number, tag in enumerate(tags):
        key, values = keys[number], [value for value in tag.values or [] if value]
        if not key or key in keys[:number]:
            raise _invalid(f"tags[{number}].key", "must be set, and no two tags can have the same key")
        if len(values) > MAX_VALUES or len(set(values)) != len(values):
            raise _invalid(f"tags[{number}].values", f"must have at most {MAX_VALUES} values, and none twice")
        label = f"tag:{key}"
        parts.append(Label(label, "in", tuple(values)) if values else Label(label, "!=", None))
    return parts


def _hosts(hosts: list[str]) -> list[Query]:
    """All replicas run on this machine: its address matches every job that has started, another one matches none."""
    if len(hosts) > MAX_HOSTS:
        raise _invalid("host_ips", f"has {len(hosts)} addresses; at most {MAX_HOSTS} are allowed")
    addresses: set[str] = set()
    for number, host in enumerate(hosts):
        try:
            addresses.add(str(ipaddress.ip_address(host)))
        except ValueError:
            raise _invalid(f"host_ips[{number}]", f"must be an IPv4 or IPv6 address, not {host!r}") from None
    if not hosts:
        return []
    return [Compare("started", "!=", None) if HOST_IP in addresses else Any()]


def _window(filters: list[Filter], now: int) -> list[Query]:
    """A list by tags or hosts covers at most 31 days of creation times: the last 31 unless a filter says which."""
    for number, condition in enumerate(filters):
        values = _texts(number, condition)
        if condition.key == "create_time" and any(values):
            field = f"filters[{number}].value"
            low = _time(field, values[0]) if values[0] else None
            high = _time(field, values[1]) if values[1] else now
            if low is None or high - low > WINDOW:
                raise _bad_value(field, "must span at most 31 days when tags or host_ips are set")
            return []
    return [Compare("created", ">=", max(0, now - WINDOW))]


def _within(field: str, value: int | None, default: int, low: int, high: int) -> int:
    if value is None:
        return default
    if not low <= value <= high:
        raise _invalid(field, f"must be an integer from {low} to {high}, not {value}")
    return value


def _invalid(field: str, why: str) -> Invalid:
    return Invalid(f"{field} {why}.", field=field, code=INVALID)


def _bad_value(field: str, why: str) -> Invalid:
    return Invalid(f"{field} {why}.", field=field, code=BAD_FILTER_VALUE)
