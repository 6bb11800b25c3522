"""The filter and the order of a list of jobs, from the query of its URL."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from starlette.datastructures import QueryParams

from turnout.dialects.native.cursor import Position
from turnout.errors import Invalid
from turnout.job import All, Any, Compare, Job, Label, Page, Query, State
from turnout.job.state import ENDED, LIVE

APIS = ("tia", "modelarts", "vertex")
USER_LABELS = ("label:", "tag:")
"""The prefixes under which Vertex and ModelArts store the labels that users see. Others are internal."""
ORDERS = ("created", "updated", "started", "ended", "name", "priority")
DEFAULT_LIMIT = 50
MAX_LIMIT = 500

_SECOND = 1_000_000_000
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_STATES = {str(state): (str(state),) for state in State} | {
    "live": tuple(sorted(LIVE)),
    "waiting": (str(State.QUEUED), str(State.PREPARING)),
    "ended": tuple(sorted(ENDED)),
}
_MOST_VALUES = 20
_LONGEST = 1000


class Listing(NamedTuple):
    """What the query of the URL asks for."""

    query: Query
    order_by: str
    """A field of a job."""
    descending: bool
    limit: int
    canonical: tuple[str, ...]
    """What a cursor of this list is signed for."""

    def page(self) -> Page:
        """One more job than asked for shows whether there is a next page."""
        return Page(self.limit + 1, order_by=self.order_by, descending=self.descending)

    def after(self, position: Position) -> Query:
        """The jobs after the last one of the previous page. None is the smallest value."""
        value, job_id = position
        op = "<" if self.descending else ">"
        later = Compare("id", op, job_id)
        if self.order_by == "id":
            return later
        equal = All(Compare(self.order_by, "=", value), later)
        if value is None:
            return equal if self.descending else Any(equal, Compare(self.order_by, "!=", None))
        beyond = Any(equal, Compare(self.order_by, op, value))
        has_empty = self.order_by in ("started", "ended")
        return Any(*beyond, Compare(self.order_by, "=", None)) if self.descending and has_empty else beyond

    def position(self, job: Job) -> Position:
        return Position(None if self.order_by == "id" else getattr(job, self.order_by), job.id)


def parse(query: QueryParams, now: int, me: str = "") -> Listing:
    """`me`: the owner that `owner=me` means. Raises Invalid, which names the parameter.

    `project`, `limit` and `cursor` are no part of the filter.
    """
    unknown = sorted(set(query) - set(_FILTERS) - {"project", "order", "limit", "cursor"})
    if unknown:
        known = ", ".join((*_FILTERS, "project", "order", "limit", "cursor"))
        raise Invalid(f"{unknown[0][:100]}: unknown parameter; use one of {known}", field=unknown[0])
    conditions: list[Query] = []
    for name, value in query.multi_items():
        if len(value) > _LONGEST:
            raise Invalid(f"{name}: has more than {_LONGEST} characters", field=name)
        if name in _FILTERS and value:
            conditions.append(_FILTERS[name](name, me if (name, value) == ("owner", "me") else value, now))
    if len(conditions) > _MOST_VALUES:
        raise Invalid(f"the filter has more than {_MOST_VALUES} conditions")
    order = query.get("order") or "-created"
    field = order.removeprefix("-")
    if field not in ORDERS:
        raise Invalid(
            f"order: must be one of {', '.join(ORDERS)}, with - before it for the largest first, not {order!r}",
            field="order",
        )
    shown = sorted(
        f"{name}={value}" for name, value in query.multi_items() if name not in ("cursor", "limit")
    )
    # Ids grow with the time of creation, and the database has the jobs in their order.
    order_by = "id" if field == "created" else field
    return Listing(All(*conditions), order_by, order.startswith("-"), read_limit(query), tuple(shown))


def user_labels(labels: dict[str, str]) -> dict[str, str]:
    return {
        key.removeprefix(prefix): value
        for key, value in labels.items()
        for prefix in USER_LABELS
        if key.startswith(prefix)
    }


def read_limit(query: QueryParams) -> int:
    text = query.get("limit") or str(DEFAULT_LIMIT)
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise Invalid(f"limit: must be a whole number from 1 to {MAX_LIMIT}, not {text!r}", field="limit")
    return min(int(text), MAX_LIMIT)


def _api(name: str, value: str, now: int) -> Query:
    return Compare("dialect", "in", _among(name, value, {api: (api,) for api in APIS}))


def _state(name: str, value: str, now: int) -> Query:
    return Compare("state", "in", _among(name, value, _STATES))


def _name(name: str, value: str, now: int) -> Query:
    """A part of the name or, with `*`, a pattern for all of it."""
    return Compare("name", "like" if "*" in value else "contains", value)


def _cluster(name: str, value: str, now: int) -> Query:
    return Compare("cluster", "in", tuple(value.split(",")))


def _label(name: str, value: str, now: int) -> Query:
    """`key`, or `key=value`."""
    key, equals, wanted = value.partition("=")
    if not key:
        raise Invalid(f"label: must be `key` or `key=value`, not {value!r}", field="label")
    op = "=" if equals else "!="
    return Any(*(Label(prefix + key, op, wanted if equals else None) for prefix in USER_LABELS))


def _owner(name: str, value: str, now: int) -> Query:
    return Compare("owner", "in", tuple(value.split(",")))


def _since(name: str, value: str, now: int) -> Query:
    return Compare("created", ">=", read_time(name, value, now))


def _until(name: str, value: str, now: int) -> Query:
    return Compare("created", "<", read_time(name, value, now))


def _ended_since(name: str, value: str, now: int) -> Query:
    return Compare("ended", ">=", read_time(name, value, now))


def read_time(name: str, value: str, now: int) -> int:
    """Nanoseconds since 1970, from `2h` (ago), a time of ISO 8601, or such a number."""
    if re.fullmatch(r"[0-9]{1,9}[smhdw]", value):
        return max(0, now - int(value[:-1]) * _UNITS[value[-1]] * _SECOND)
    if re.fullmatch(r"[0-9]{16,19}", value):
        return int(value)
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise Invalid(
            f"{name}: must be a time ago such as 30m, 2h or 7d, or a time such as 2026-01-31T12:00:00Z, not {value!r}",
            field=name,
        ) from None
    try:
        return max(0, int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())) * _SECOND
    except (OverflowError, ValueError):
        raise Invalid(f"{name}: {value!r} is not a time that this service can compare", field=name) from None


def _among(name: str, value: str, known: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    wanted = value.split(",")
    for one in wanted:
        if one not in known:
            raise Invalid(f"{name}: must be one or more of {', '.join(known)}, not {one!r}", field=name)
    return tuple(state for one in wanted for state in known[one])


_FILTERS: dict[str, Callable[[str, str, int], Query]] = {
    "api": _api,
    "state": _state,
    "name": _name,
    "label": _label,
    "cluster": _cluster,
    "owner": _owner,
    "since": _since,
    "until": _until,
    "ended_since": _ended_since,
}
