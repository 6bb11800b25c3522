"""One filter tree for all dialects. Each translates its own grammar into it; the store turns it into SQL."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

FIELDS = frozenset(
    {
        "id",
        "project",
        "dialect",
        "scope",
        "handle",
        "name",
        "cluster",
        "owner",
        "state",
        "priority",
        "created",
        "updated",
        "started",
        "ended",
        "deleted",
        "reason",
    }
)
"""The columns of a job."""

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "in", "contains", "like"]
"""`like` matches the whole text: `*` is any text, every other character is itself."""


@dataclass(frozen=True, slots=True)
class Compare:
    field: str
    op: Operator
    value: str | int | tuple[str | int, ...] | None

    def __post_init__(self) -> None:
        if self.field not in FIELDS:
            raise ValueError(f"{self.field} is not a field of a job; there are {', '.join(sorted(FIELDS))}")


@dataclass(frozen=True, slots=True)
class Label:
    """Compares one of a job's labels. A missing label equals None, is in no list and contains nothing."""

    key: str
    op: Literal["=", "!=", "in", "contains", "like"]
    value: str | tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Not:
    query: "Query"


class All(tuple["Query", ...]):
    """True if all queries are; without queries it is true."""

    __slots__ = ()

    def __new__(cls, *queries: "Query") -> "All":
        return super().__new__(cls, queries)


class Any(tuple["Query", ...]):
    """True if at least one query is; without queries it is false."""

    __slots__ = ()

    def __new__(cls, *queries: "Query") -> "Any":
        return super().__new__(cls, queries)


Query = Compare | Label | Not | All | Any


class Page(NamedTuple):
    """Which part of the result: jobs in the order of `order_by`, then of their ids."""

    limit: int
    offset: int = 0
    before_id: int | None = None
    """Only jobs with a smaller id: where the last page ended."""
    order_by: str = "id"
    descending: bool = True
