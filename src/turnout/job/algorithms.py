"""The search algorithms by name, their settings, and the checks of a search."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from turnout.errors import Invalid
from turnout.job.search import Algorithm, Parameter, Point, Search, Value, levels, only_active, size, skips

LARGEST_GRID = 100_000
LARGEST_SEED = 2**32 - 1


class Setting(NamedTuple):
    """A setting of an algorithm. Its type is that of its default."""

    default: Value
    low: float = -math.inf
    high: float = math.inf
    words: tuple[str, ...] = ()


_ALL = {"num_samples": Setting(20, 1, 100_000), "seed": Setting(1, 0, LARGEST_SEED)}

ALGORITHMS: dict[str, dict[str, Setting]] = {
    "bayes_opt_search": {
        "kind": Setting("ucb", words=("ucb", "ei", "poi")),
        "kappa": Setting(2.5, 0),
        "xi": Setting(0.0, 0),
        **_ALL,
    },
    "tpe_search": {"gamma": Setting(0.25, 0, 1), "n_initial_points": Setting(20, 1), **_ALL},
    "anneal_search": {"avg_best_idx": Setting(2.0, 1), "shrink_coef": Setting(0.1, 0), **_ALL},
    "default": _ALL,
    "grid": _ALL,
    "random": _ALL,
}


def param_value(algorithm: Algorithm, name: str) -> Value:
    """The setting's value or its default; a number if the default is a number."""
    default = ALGORITHMS[algorithm.name][name].default
    value = algorithm.params.get(name, default)
    return value if isinstance(default, str) else type(default)(value)


def budgets(search: Search) -> tuple[int, ...]:
    """The number of trials for each algorithm; a grid gets at most as many as it has points."""
    remaining = search.max_trials or LARGEST_GRID * len(search.algorithms)
    shares: list[int] = []
    for algorithm in search.algorithms:
        wanted = remaining
        if "num_samples" in algorithm.params or not search.max_trials:
            wanted = min(remaining, int(param_value(algorithm, "num_samples")))
        if algorithm.name == "grid":
            wanted = sum(1 for _ in itertools.islice(grid(search), wanted))
        shares.append(wanted)
        remaining -= wanted
    return tuple(shares)


def algorithm_of(budgets: Sequence[int], number: int) -> tuple[int, int]:
    """The index of the algorithm that chooses this trial, and the trial's number within that algorithm.

    `budgets`: the number of trials of each algorithm. Numbers begin with 0. Raises Invalid.
    """
    first = 0
    for index, count in enumerate(budgets):
        if number < first + count:
            return index, number - first
        first += count
    raise Invalid(f"the search has {first} trials, numbered from 0: there is no {number}")


def grid(search: Search) -> Iterator[Point]:
    """Every point of a finite space, without the skipped ones."""
    names = [parameter.name for parameter in search.parameters]
    seen: set[tuple[tuple[str, Value], ...]] = set()
    for combination in itertools.product(*(levels(parameter) or () for parameter in search.parameters)):
        point = only_active(search.parameters, dict(zip(names, combination, strict=True)))
        key = tuple(point.items())
        if key not in seen and not skips(search, point):
            seen.add(key)
            yield point


def check(search: Search) -> None:
    """Raises Invalid, whose field is the name of the parameter, metric, algorithm or setting that is wrong."""
    if not search.parameters:
        raise Invalid("a search needs at least one parameter", field="parameters")
    if not search.metrics:
        raise Invalid("a search needs at least one metric", field="metrics")
    if not search.algorithms:
        raise Invalid(f"a search needs an algorithm: one of {', '.join(ALGORITHMS)}", field="algorithms")
    _check_parameters(search)
    for algorithm in search.algorithms:
        _check_algorithm(algorithm)
        if algorithm.name == "grid":
            _check_grid(search)
    for rule in search.skip:
        for name in rule:
            if all(parameter.name != name for parameter in search.parameters):
                raise Invalid(f"a skip rule names {name}, which is not a parameter of the search", field=name)
    if search.parallel < 1:
        raise Invalid(f"a search runs at least 1 trial at a time, not {search.parallel}", field="parallel")


def _check_parameters(search: Search) -> None:
    earlier: dict[str, Parameter] = {}
    for parameter in search.parameters:
        name = parameter.name
        if not name:
            raise Invalid("a search parameter needs a name", field="name")
        if name in earlier:
            raise Invalid(f"{name} is given twice", field=name)
        if parameter.kind in ("float", "integer"):
            _check_range(parameter)
        else:
            _check_values(parameter)
        _check_condition(parameter, earlier)
        earlier[name] = parameter


def _check_range(parameter: Parameter) -> None:
    name, low, high = parameter.name, parameter.low, parameter.high
    if low is None or high is None:
        raise Invalid(f"{name} needs a lower and an upper bound", field=name)
    if not (math.isfinite(low) and math.isfinite(high) and math.isfinite(high - low)):
        raise Invalid(f"the bounds of {name} must be finite numbers", field=name)
    if low > high:
        raise Invalid(f"the lower bound of {name}, {low:g}, is above its upper bound, {high:g}", field=name)
    if parameter.scale != "linear" and low <= 0:
        raise Invalid(
            f"{name} has a logarithmic scale: its lower bound must be above 0, not {low:g}", field=name
        )
    if parameter.kind == "integer" and (low % 1 or high % 1):
        raise Invalid(f"the bounds of {name} must be whole numbers, not {low:g} and {high:g}", field=name)
    if parameter.kind == "integer" and max(abs(low), abs(high)) > 2**53:
        raise Invalid(f"the bounds of {name} must lie within ±2^53", field=name)
    if parameter.points is not None and not 1 <= parameter.points <= LARGEST_GRID:
        raise Invalid(f"{name} can have 1 to {LARGEST_GRID} points, not {parameter.points}", field=name)


def _check_values(parameter: Parameter) -> None:
    name, values = parameter.name, parameter.values
    if not values:
        raise Invalid(f"{name} needs at least one value", field=name)
    for value in values if parameter.kind == "discrete" else ():
        if not _is_number(value):
            raise Invalid(f"the discrete values of {name} must be numbers, not {value!r}", field=name)
    different = {float(value) for value in values} if parameter.kind == "discrete" else set(values)
    if min(len(different), len(set(map(str, values)))) < len(values):
        raise Invalid(f"{name} has a value twice", field=name)


def _is_number(value: Value) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def _check_condition(parameter: Parameter, earlier: dict[str, Parameter]) -> None:
    condition = parameter.condition
    if condition is None:
        return
    name = parameter.name
    parent = earlier.get(condition.parent)
    if parent is None:
        raise Invalid(f"{name} depends on {condition.parent}, which must come before it", field=name)
    if parent.kind == "integer":
        low, high = parent.low or 0, parent.high or 0
        possible = all(not isinstance(v, str) and low <= v <= high for v in condition.values)
    else:
        possible = set(condition.values) <= set(levels(parent) or ())
    if not condition.values or not possible:
        raise Invalid(f"{name} depends on values that {condition.parent} cannot have", field=name)


def _check_algorithm(algorithm: Algorithm) -> None:
    settings = ALGORITHMS.get(algorithm.name)
    if settings is None:
        raise Invalid(
            f"there is no search algorithm {algorithm.name}; there are {', '.join(ALGORITHMS)}",
            field=algorithm.name,
        )
    for name, value in algorithm.params.items():
        setting = settings.get(name)
        if setting is None:
            raise Invalid(f"{algorithm.name} has no {name}; it has {', '.join(settings)}", field=name)
        _check_setting(name, setting, value)


def _check_setting(name: str, setting: Setting, value: Value) -> None:
    if setting.words:
        if value not in setting.words:
            raise Invalid(f"{name} is one of {', '.join(setting.words)}, not {value!r}", field=name)
        return
    kind = "a whole number" if isinstance(setting.default, int) else "a number"
    try:
        number = float(msgspec.convert(value, type(setting.default), strict=False))
    except msgspec.ValidationError:
        raise Invalid(f"{name} must be {kind}, not {value!r}", field=name) from None
    if isinstance(value, bool) or not setting.low <= number <= setting.high or not math.isfinite(number):
        span = f"from {setting.low:g}" + (
            f" to {setting.high:g}" if math.isfinite(setting.high) else " upwards"
        )
        raise Invalid(f"{name} must be {kind} {span}, not {value!r}", field=name)


def _check_grid(search: Search) -> None:
    for parameter in search.parameters:
        if size(parameter) == math.inf:
            raise Invalid(
                f"a grid needs a number of points for {parameter.name}, which is continuous",
                field=parameter.name,
            )
    if math.prod(map(size, search.parameters)) > LARGEST_GRID:
        raise Invalid(f"the grid has more than {LARGEST_GRID} points: use random", field="grid")
