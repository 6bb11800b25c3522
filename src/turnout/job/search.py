"""What a search tries: parameters and their ranges, the metric that decides, and who chooses the points."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

Value = bool | int | float | str
Point = dict[str, Value]


class Condition(msgspec.Struct, frozen=True):
    """A parameter is there only while its parent, which comes before it, has one of these values."""

    parent: str
    values: tuple[Value, ...]


class Parameter(msgspec.Struct, frozen=True, omit_defaults=True):
    """`float` and `integer` lie between two bounds, both included; the others have a list of values."""

    name: str
    kind: Literal["float", "integer", "categorical", "discrete"]
    low: float | None = None
    high: float | None = None
    values: tuple[Value, ...] = ()
    """Given back as they are spelt here. Those of `discrete` are numbers, or text that reads as one."""
    scale: Literal["linear", "log", "reverse_log"] = "linear"
    """`log` looks closer at the low end, `reverse_log` at the high one; discrete values are one step apart anyway."""
    points: int | None = None
    """Of a float: so many values, evenly spaced on its scale, both bounds among them."""
    condition: Condition | None = None


class Metric(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    goal: Literal["max", "min"] = "max"
    regex: str = ""


class Algorithm(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of `turnout.job.algorithms.ALGORITHMS`, and what it was told; the rest is as it says there."""

    name: str
    params: dict[str, Value] = {}


class Stopping(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a trial that does badly is ended before it is done."""

    kind: Literal["median", "decay_curve"]
    """`median`: below the median of the others at the same step. `decay_curve`: surely worse than the best one."""
    by: Literal["steps", "seconds"] = "steps"
    startup: int = 5
    """Trials that must have finished before one is judged."""
    warmup: int = 0
    """Steps (or seconds after a trial's first measurement) in which it is left alone."""


class Search(msgspec.Struct, frozen=True, omit_defaults=True):
    parameters: tuple[Parameter, ...]
    metrics: tuple[Metric, ...]
    """The first decides."""
    algorithms: tuple[Algorithm, ...]
    """One after another on the same space; none knows what another has tried."""
    max_trials: int = 0
    """0: as many as the algorithms say."""
    parallel: int = 4
    max_failed: int = 0
    """So many failed trials fail the search; 0: it goes on while any trial succeeds."""
    skip: tuple[dict[str, str], ...] = ()
    """Points that are left out: those which have all the values of one of these."""
    stopping: Stopping | None = None
    measurement: Literal["last", "best"] = "last"

    @property
    def metric(self) -> Metric:
        return self.metrics[0]


def read_skip(text: str) -> tuple[dict[str, str], ...]:
    """`lr=0.1,batch=64;batch=128`: commas join what must come together, semicolons part one rule from the next.

    Raises ValueError with words for the user.
    """
    rules = [_read_rule(rule) for rule in text.split(";") if rule.strip()]
    return tuple(rules)


def skips(search: Search, point: Point) -> bool:
    """Whether a rule of `search.skip` leaves this point out."""
    return any(
        all(name in point and _same(point[name], text) for name, text in rule.items()) for rule in search.skip
    )


def only_active(parameters: Sequence[Parameter], point: Point) -> Point:
    """The point without the parameters whose condition does not hold."""
    kept: Point = {}
    for parameter in parameters:
        condition = parameter.condition
        if condition is None or (condition.parent in kept and kept[condition.parent] in condition.values):
            kept[parameter.name] = point[parameter.name]
    return kept


def levels(parameter: Parameter) -> tuple[Value, ...] | None:
    """All values of a parameter that has few enough to count, None for a float between two bounds."""
    if parameter.values:
        if parameter.kind == "categorical":
            return parameter.values
        return tuple(sorted(parameter.values, key=float))
    low, high = bounds(parameter)
    if parameter.kind == "integer":
        return tuple(range(int(low), int(high) + 1))
    return None if parameter.points is None else tuple(_spaced(parameter, parameter.points))


def size(parameter: Parameter) -> float:
    """How many values it has."""
    low, high = (0.0, 0.0) if parameter.values else bounds(parameter)
    if parameter.values:
        return len(parameter.values)
    if low == high:
        return 1
    if parameter.kind == "integer":
        return int(high) - int(low) + 1
    return math.inf if parameter.points is None else parameter.points


def bounds(parameter: Parameter) -> tuple[float, float]:
    if parameter.low is None or parameter.high is None:
        raise ValueError(f"{parameter.name} has no bounds")
    return parameter.low, parameter.high


def _read_rule(rule: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for pair in rule.split(","):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not (name and equals and value):
            raise ValueError(f"{pair.strip()!r} is not name=value; rules look like lr=0.1,batch=64;batch=128")
        if name in pairs:
            raise ValueError(f"{rule.strip()!r} names {name} twice; semicolons part one rule from the next")
        pairs[name] = value
    return pairs


def _same(value: Value, text: str) -> bool:
    try:
        return float(value) == float(text)
    except ValueError:
        return str(value) == text


def _spaced(parameter: Parameter, count: int) -> Iterator[float]:
    low, high = bounds(parameter)
    if low == high or count == 1:
        yield low
        return
    yield low
    for step in range(1, count - 1):
        share = step / (count - 1)
        match parameter.scale:
            case "linear":
                yield low + (high - low) * share
            case "log":
                yield low * (high / low) ** share
            case "reverse_log":
                yield low + high - high * (low / high) ** share
    yield high


def printed(metric: str) -> str:
    """The regular expression for a metric that was given none: `acc=0.9`, `acc: 9e-1`."""
    return rf"(?<![\w.-]){re.escape(metric)}[\"']?\s*[=:]\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"


def how_to_install(missing: Sequence[str]) -> str:
    return (
        f"hyper-parameter search needs {', '.join(missing)} on the server: "
        "pip install 'turnout[search]', in the service's own environment"
    )
