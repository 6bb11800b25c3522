"""Requests of the service to a search worker, and their replies: a line of JSON each, one request at a time."""

import msgspec

from turnout.child_processes.bootstrap import Reply
from turnout.job.search import Point, Search
from turnout.search.suggester import KnownTrial


class MetricValue(msgspec.Struct, frozen=True, array_like=True):
    """One value of the first metric, reported by a running trial."""

    step: int
    at: int
    value: float


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    id: int = 0
    """`Child.request` sets it."""
    session: int = 0
    """The number of the study in the worker."""


class Open(_Request, frozen=True, tag="open"):
    """The first request of a session."""

    search: Search
    seed: int


class _StudyRequest(_Request, frozen=True, kw_only=True):
    changed_trials: list[KnownTrial] = []
    """Trials that are new or done since the last request."""


class Ask(_StudyRequest, frozen=True, tag="ask"):
    number: int


class ShouldStop(_StudyRequest, frozen=True, tag="should_stop"):
    number: int
    new_values: dict[int, list[MetricValue]] = {}
    """New values since the last request, by the trial's number."""
    best_and_last: dict[int, list[MetricValue]] = {}
    """The best and the last value of those trials, which may be missing from `new_values`."""


class ComputeImportance(_StudyRequest, frozen=True, tag="importance"):
    pass


class Draw(_StudyRequest, frozen=True, tag="draw"):
    name: str
    """A parameter's name; empty for the importance of all parameters."""


class Scan(_StudyRequest, frozen=True, tag="scan"):
    """Apply the metrics' regular expressions to these lines."""

    lines: list[str]


StudyRequest = Ask | ShouldStop | ComputeImportance | Draw | Scan
Request = Open | StudyRequest


class Importance(msgspec.Struct, frozen=True, array_like=True):
    name: str
    mean: float
    std: float


class StudyReply(Reply, omit_defaults=True):
    unknown_session: bool = False
    """The session is not open here: the process is new, or has dropped it in favour of others."""
    point: Point | None = None
    stop: bool = False
    importance: tuple[Importance, ...] = ()
    picture: bytes = b""
    found: tuple[tuple[int, dict[str, str]], ...] = ()
    """(index of the line, metric → matched text)."""
    invalid: str = ""
    """What is wrong with the request, for the user."""
    library_error: str = ""
    """The exception of a library."""
    missing_package: str = ""
    """The package that is not installed."""
    out_of_memory: bool = False
    """The process reached its memory limit."""
