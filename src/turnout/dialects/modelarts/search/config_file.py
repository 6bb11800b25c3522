"""A search as the YAML file at `autosearch_config_path` defines it, and templates for such files."""

import itertools
import re
from typing import Any, cast

import msgspec

from turnout.dialects.modelarts import errors
from turnout.dialects.modelarts.errors import invalid, quoted
from turnout.dialects.modelarts.search import definition
from turnout.errors import Unsupported
from turnout.job import Search
from turnout.job.algorithms import ALGORITHMS, LARGEST_GRID
from turnout.job.search import Algorithm, Metric, Parameter, Stopping, Value

MAX_BYTES = 64 << 10
MAX_CONCURRENT = 1000
TYPES = {
    "bayes_opt_search": "bayes_opt_search",
    "tpe_search": "tpe_search",
    "anneal_search": "anneal_search",
    "grid_search": "grid",
    "random_search": "random",
}
"""search_algorithm.type to the algorithm's name in a Search."""
SCHEDULERS: dict[str, Stopping | None] = {
    "FIFOScheduler": None,
    "MedianStoppingRule": Stopping("median"),
}

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}")
_POWER = re.compile(r"[-+]?[0-9]{1,400}[eE][-+]?[0-9]{1,9}")

Number = int | float


class Param(msgspec.Struct):
    name: str
    type: str | None = None
    values: list[bool | int | float | str] | None = None
    start: Number | None = None
    stop: Number | None = None
    num: int | None = None
    base: Number | None = None


class Group(msgspec.Struct):
    params: list[Param]
    type: str | None = None


class Scheduler(msgspec.Struct):
    type: str = "FIFOScheduler"


class Document(msgspec.Struct):
    search_space: list[Group]
    search_algorithm: dict[str, Any]
    general: dict[str, Any] | None = None
    scheduler: Scheduler | None = None


def to_search(content: bytes, field: str, notes: list[str]) -> Search:
    """Raises Invalid that names the field in the file."""
    document = _read(content, field)
    algorithm = dict(document.search_algorithm)
    kind = TYPES.get(str(algorithm.pop("type", "")))
    if kind is None:
        detail = f": search_algorithm.type must be one of {', '.join(TYPES)}."
        raise invalid(errors.BAD_SEARCH, field, detail)
    scheduler = (document.scheduler or Scheduler()).type
    if scheduler not in SCHEDULERS:
        detail = f": scheduler.type {quoted(scheduler)} must be one of {', '.join(SCHEDULERS)}."
        raise invalid(errors.BAD_SEARCH, field, detail)
    metric = _metric(algorithm, field)
    parallel = _concurrency(algorithm.pop("max_concurrent", 4), f"{field}: search_algorithm.max_concurrent")
    detail = {key: cast(Value, algorithm.pop(key)) for key in list(algorithm) if key in ALGORITHMS[kind]}
    notes += [f"{field}: search_algorithm.{key} has no effect in this service" for key in algorithm]
    notes += [
        f"{field}: general.{key} has no effect: spec.resource decides" for key in document.general or {}
    ]
    space = tuple(_parameters(document, field))
    found = Search(
        space,
        (metric,),
        (Algorithm(kind, detail),),
        # A grid ends when all its points are tried.
        max_trials=LARGEST_GRID if kind == "grid" and "num_samples" not in detail else 0,
        parallel=parallel,
        stopping=SCHEDULERS[scheduler],
    )
    return definition.checked(found, field)


def _read(content: bytes, field: str) -> Document:
    try:
        # YAML 1.1 reads 1e-5 as text: only 1.0e-5 is a number.
        return msgspec.convert(_load(content), Document, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(errors.BAD_SEARCH, field, f": {error}.") from None
    except (ValueError, RecursionError) as error:
        detail = " ".join(str(error).split()) or "it is nested too deeply"
        raise invalid(errors.BAD_SEARCH, field, f" cannot be read: {detail}.") from None


def _load(content: bytes) -> Any:
    """Raises ValueError. Refuses aliases, which can expand a small file into a huge document."""
    try:
        import yaml  # needed for such files only
    except ImportError:
        detail = "Search configurations need pyyaml on the server: install Turnout there with all its dependencies."
        raise Unsupported(detail, code=errors.UNSUPPORTED) from None
    if len(content) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes")
    try:
        for event in yaml.parse(content, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise ValueError("aliases are not supported")
        return yaml.load(content, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _metric(algorithm: dict[str, Any], field: str) -> Metric:
    name, mode = str(algorithm.pop("reward_attr", "")), str(algorithm.pop("mode", "max"))
    if not name:
        raise invalid(errors.BAD_METRIC, field, ": search_algorithm.reward_attr is missing.")
    if mode not in ("max", "min"):
        raise invalid(errors.BAD_METRIC, field, f": search_algorithm.mode {quoted(mode)} must be max or min.")
    return Metric(name, "min" if mode == "min" else "max")


def _concurrency(value: Any, field: str) -> int:
    if not isinstance(value, int) or not 1 <= value <= MAX_CONCURRENT:
        raise invalid(errors.BAD_SEARCH, field, f" must be from 1 to {MAX_CONCURRENT}, not {quoted(value)}.")
    return value


def _parameters(document: Document, field: str) -> list[Parameter]:
    params = [(param, group.type) for group in document.search_space for param in group.params]
    if len(params) > definition.MAX_PARAMETERS:
        detail = (
            f": search_space has {len(params)} parameters; at most {definition.MAX_PARAMETERS} are allowed."
        )
        raise invalid(errors.BAD_SEARCH, field, detail)
    for param, _ in params:
        if not _NAME.fullmatch(param.name):
            detail = (
                f": the parameter {quoted(param.name)} must have 1 to 64 letters, digits, `_`, `.` and `-`."
            )
            raise invalid(errors.BAD_SEARCH, field, detail)
    return [_parameter(param, param.type or kind or "", field) for param, kind in params]


def _parameter(param: Param, kind: str, field: str) -> Parameter:
    match kind.removesuffix("_param"):
        case "discrete":
            values = tuple(
                float(value) if isinstance(value, str) and _POWER.fullmatch(value) else value
                for value in param.values or ()
            )
            if len(values) > definition.MAX_VALUES:
                detail = (
                    f": {param.name} has {len(values)} values; at most {definition.MAX_VALUES} are allowed."
                )
                raise invalid(errors.BAD_SEARCH, field, detail)
            numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
            return Parameter(param.name, "discrete" if numbers else "categorical", values=values)
        case "continuous":
            return _range(param, field)
        case _:
            detail = (
                f": the type of {param.name}, {quoted(kind)}, must be continuous_param or discrete_param."
            )
            raise invalid(errors.BAD_SEARCH, field, detail)


def _range(param: Param, field: str) -> Parameter:
    """With `base`, start and stop are exponents. Whole numbers with a whole step stay whole."""
    if param.start is None or param.stop is None:
        raise invalid(errors.BAD_SEARCH, field, f": {param.name} needs start and stop.")
    if param.base is not None:
        try:
            ends = sorted(float(param.base) ** end for end in (param.start, param.stop))
        except (ArithmeticError, TypeError):
            raise invalid(
                errors.BAD_SEARCH, field, f": {param.name}: base to the power of start or stop is not finite."
            ) from None
        return Parameter(param.name, "float", ends[0], ends[1], scale="log", points=param.num)
    low, high = sorted((param.start, param.stop))
    if isinstance(low, int) and isinstance(high, int) and param.num and 1 < param.num <= high - low + 1:
        step, rest = divmod(high - low, param.num - 1)
        if not rest and param.num <= definition.MAX_VALUES:
            values = tuple(itertools.islice(itertools.count(low, step), param.num))
            return Parameter(param.name, "discrete", values=values)
    try:
        return Parameter(param.name, "float", float(low), float(high), points=param.num)
    except OverflowError:
        raise invalid(errors.BAD_SEARCH, field, f": {param.name} has bounds that are too large.") from None


def template(name: str) -> str | None:
    """The content of a template, or None."""
    return _TEMPLATES.get(name)


_HEAD = """\
general:
  instance_per_trial: 1

search_space:
  - params:
"""
_CONTINUOUS = """\
    - type: continuous_param
      name: lr
      start: 0.001
      stop: 0.1
"""
_DISCRETE = """\
    - type: discrete_param
      name: batch_size
      values: [16, 32, 64]
"""
_GRID = """\
    - type: continuous_param
      name: lr
      start: -3
      stop: -1
      num: 3
      base: 10
"""
_ALGORITHM = """
search_algorithm:
  type: {type}
  max_concurrent: 4
  reward_attr: accuracy
  mode: max
"""
_TAIL = """
scheduler:
  type: FIFOScheduler
"""


def _template(space: str, algorithm: str, **detail: Value) -> str:
    more = "".join(f"  {key}: {value}\n" for key, value in detail.items())
    return _HEAD + space + _ALGORITHM.format(type=algorithm) + more + _TAIL


_TEMPLATES = {
    "Anneal": _template(_CONTINUOUS + _DISCRETE, "anneal_search", num_samples=8),
    "Bayes": _template(_CONTINUOUS, "bayes_opt_search", num_samples=8, kind="ucb"),
    "GridSearch": _template(_GRID + _DISCRETE, "grid_search"),
    "TPE": _template(_CONTINUOUS + _DISCRETE, "tpe_search", num_samples=8, n_initial_points=4),
}
TEMPLATES = tuple(_TEMPLATES)
