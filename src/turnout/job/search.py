"""A hyper-parameter search: parameters and their ranges, metrics, and the algorithms that choose points."""

import math
import re
from collections.abc import Hashable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

Value = bool | int | float | str
Point = dict[str, Value]


class Condition(msgspec.Struct, frozen=True, gc=False):
    """The parameter exists only while its parent, which precedes it, has one of these values."""

    parent: str
    values: tuple[Value, ...]


class Parameter(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`float` and `integer` lie between two bounds, both included; the others have a list of values."""

    name: str
    kind: Literal["float", "integer", "categorical", "discrete"]
    low: float | None = None
    high: float | None = None
    values: tuple[Value, ...] = ()
    """Returned as written here. Those of `discrete` are numbers, or text that is a number."""
    scale: Literal["linear", "log", "reverse_log"] = "linear"
    """`log` resolves the low end more finely, `reverse_log` the high end; discrete values are always one step apart."""
    points: int | None = None
    """For a float: the number of values, evenly spaced on its scale, including both bounds."""
    condition: Condition | None = None


class Metric(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    name: str
    goal: Literal["max", "min"] = "max"
    regex: str = ""


class Algorithm(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One of `turnout.job.algorithms.ALGORITHMS` with its settings; the others have the defaults from there."""

    name: str
    params: dict[str, Value] = {}


class Stopping(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """When to stop a bad trial early."""

    kind: Literal["median", "decay_curve"]
    """`median`: worse than the median of the others at the same step. `decay_curve`: clearly worse than the best."""
    by: Literal["steps", "seconds"] = "steps"
    startup: int = 5
    """The number of trials that must finish before any is judged."""
    warmup: int = 0
    """The number of steps (or seconds after its first measurement) before a trial is judged."""


class Search(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    parameters: tuple[Parameter, ...]
    metrics: tuple[Metric, ...]
    """The first is the objective."""
    algorithms: tuple[Algorithm, ...]
    """Run one after the other on the same space, each without the results of the others."""
    max_trials: int = 0
    """0 for the sum over the algorithms."""
    parallel: int = 4
    max_failed: int = 0
    """The number of failed trials that fails the search; 0 if it only fails when all trials do."""
    skip: tuple[dict[str, str], ...] = ()
    """Rules for skipped points: a point with all the values of one of these is skipped."""
    stopping: Stopping | None = None
    measurement: Literal["last", "best"] = "last"

    @property
    def metric(self) -> Metric:
        return self.metrics[0]


class LiveSearch(NamedTuple):
    """A search that has not ended, for the decision when it starts its first trial."""

    kind: Hashable
    """Equal for searches of one project whose trials the scheduler treats alike."""
    has_trials: bool
    """Whether it has started a trial, which may still wait in the queue."""


def parse_skip_rules(text: str) -> tuple[dict[str, str], ...]:
    """`lr=0.1,batch=64;batch=128`: commas join the conditions of a rule, semicolons separate rules.

    Raises ValueError with a message for the user.
    """
    rules = [_read_rule(rule) for rule in text.split(";") if rule.strip()]
    return tuple(rules)


def skips(search: Search, point: Point) -> bool:
    """Whether a rule of `search.skip` skips this point."""
    return any(
        all(name in point and _equals(point[name], text) for name, text in rule.items())
        for rule in search.skip
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
    """All values of a countable parameter; None for a float between two bounds."""
    if parameter.values:
        if parameter.kind == "categorical":
            return parameter.values
        return tuple(sorted(parameter.values, key=float))
    low, high = bounds(parameter)
    if parameter.kind == "integer":
        return tuple(range(int(low), int(high) + 1))
    return None if parameter.points is None else tuple(_spaced(parameter, parameter.points))


def size(parameter: Parameter) -> float:
    """How many values it has; infinite for a continuous parameter."""
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
            raise ValueError(f"{rule.strip()!r} names {name} twice; semicolons separate rules")
        pairs[name] = value
    return pairs


def _equals(value: Value, text: str) -> bool:
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


def default_regex(metric: str) -> str:
    """The default regular expression for a metric: `acc=0.9`, `acc: 9e-1`."""
    return rf"(?<![\w.-]){re.escape(metric)}[\"']?\s*[=:]\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"


def how_to_install(missing: Sequence[str]) -> str:
    return (
        f"hyper-parameter search needs {', '.join(missing)} on the server: "
        "install Turnout there with all its dependencies (make setup)"
    )
