"""What the service and the process that holds the libraries say to each other: one line of JSON each, in turns."""

import msgspec

from turnout.job.search import Point, Search
from turnout.search.seen import Seen


class Measured(msgspec.Struct, frozen=True, array_like=True):
    """One value of the metric that decides, on a trial's way."""

    step: int
    at: int
    value: float


class Open(msgspec.Struct, frozen=True, tag="open"):
    """The first thing said: what the search is."""

    search: Search
    seed: int


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    number: int
    news: list[Seen] = []
    """Trials that are new, or done, since the request before."""


class Judge(msgspec.Struct, frozen=True, tag="judge"):
    number: int
    news: list[Seen] = []
    measured: dict[int, list[Measured]] = {}
    """What came since the request before, for each trial's number."""


class Weigh(msgspec.Struct, frozen=True, tag="weigh"):
    news: list[Seen] = []


class Draw(msgspec.Struct, frozen=True, tag="draw"):
    name: str
    """A parameter's name; empty: the importance of all."""
    news: list[Seen] = []


class Scan(msgspec.Struct, frozen=True, tag="scan"):
    """Look for the metrics in these lines."""

    lines: list[str]
    news: list[Seen] = []


Request = Open | Ask | Judge | Weigh | Draw | Scan


class Weight(msgspec.Struct, frozen=True, array_like=True):
    name: str
    mean: float
    std: float


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    point: Point | None = None
    stop: bool = False
    weights: list[Weight] = []
    picture: bytes = b""
    found: list[tuple[int, dict[str, str]]] = []
    """Which lines have which metrics, as they are spelt there."""
    wrong: str = ""
    """What was wrong with the request, in words for its user."""
    broken: str = ""
    """What a library raised."""
    missing: str = ""
    """The package that is not there."""
