"""A search as the file at `autosearch_config_path` describes it, and templates of such files."""

import itertools
import re
from typing import Any, cast

import msgspec

from turnout.dialects.modelarts import auto_search, faults
from turnout.dialects.modelarts.faults import shown, wrong
from turnout.errors import Unsupported
from turnout.job import Search
from turnout.job.algorithms import ALGORITHMS, LARGEST_GRID
from turnout.job.search import Algorithm, Metric, Parameter, Stopping, Value

LARGEST = 64 << 10
MOST_AT_ONCE = 1000
TYPES = {
    "bayes_opt_search": "bayes_opt_search",
    "tpe_search": "tpe_search",
    "anneal_search": "anneal_search",
    "grid_search": "grid",
    "random_search": "random",
}
"""What search_algorithm.type says, and the algorithm that it is."""
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


def of(content: bytes, field: str, notes: list[str]) -> Search:
    """Raises Invalid that names the place in the file."""
    document = _read(content, field)
    algorithm = dict(document.search_algorithm)
    kind = TYPES.get(str(algorithm.pop("type", "")))
    if kind is None:
        told = f": search_algorithm.type must be one of {', '.join(TYPES)}."
        raise wrong(faults.BAD_SEARCH, field, told)
    scheduler = (document.scheduler or Scheduler()).type
    if scheduler not in SCHEDULERS:
        told = f": scheduler.type {shown(scheduler)} must be one of {', '.join(SCHEDULERS)}."
        raise wrong(faults.BAD_SEARCH, field, told)
    metric = _metric(algorithm, field)
    parallel = _whole(algorithm.pop("max_concurrent", 4), f"{field}: search_algorithm.max_concurrent")
    told = {key: cast(Value, algorithm.pop(key)) for key in list(algorithm) if key in ALGORITHMS[kind]}
    notes += [f"{field}: search_algorithm.{key} has no effect here" for key in algorithm]
    notes += [
        f"{field}: general.{key} has no effect: spec.resource says it" for key in document.general or {}
    ]
    space = tuple(_parameters(document, field))
    found = Search(
        space,
        (metric,),
        (Algorithm(kind, told),),
        # A grid has an end of its own.
        max_trials=LARGEST_GRID if kind == "grid" and "num_samples" not in told else 0,
        parallel=parallel,
        stopping=SCHEDULERS[scheduler],
    )
    return auto_search.sensible(found, field)


def _read(content: bytes, field: str) -> Document:
    try:
        # To YAML 1e-5 is text: it wants 1.0e-5.
        return msgspec.convert(_load(content), Document, strict=False)
    except msgspec.ValidationError as error:
        raise wrong(faults.BAD_SEARCH, field, f": {error}.") from None
    except (ValueError, RecursionError) as error:
        told = " ".join(str(error).split()) or "it is nested too deeply"
        raise wrong(faults.BAD_SEARCH, field, f" cannot be read: {told}.") from None


def _load(content: bytes) -> Any:
    """Raises ValueError. Without what makes little text a large document."""
    try:
        import yaml  # only for those who have such a file
    except ImportError:
        told = "Search configurations need pyyaml on the server: pip install 'turnout[search]'."
        raise Unsupported(told, code=f"ModelArts.{faults.UNSUPPORTED}") from None
    if len(content) > LARGEST:
        raise ValueError(f"it has more than {LARGEST} bytes")
    try:
        for event in yaml.parse(content, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise ValueError("aliases are not understood here")
        return yaml.load(content, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _metric(algorithm: dict[str, Any], field: str) -> Metric:
    name, mode = str(algorithm.pop("reward_attr", "")), str(algorithm.pop("mode", "max"))
    if not name:
        raise wrong(faults.BAD_METRIC, field, ": search_algorithm.reward_attr is missing.")
    if mode not in ("max", "min"):
        raise wrong(faults.BAD_METRIC, field, f": search_algorithm.mode {shown(mode)} must be max or min.")
    return Metric(name, "min" if mode == "min" else "max")


def _whole(value: Any, field: str) -> int:
    if not isinstance(value, int) or not 1 <= value <= MOST_AT_ONCE:
        raise wrong(faults.BAD_SEARCH, field, f" must be from 1 to {MOST_AT_ONCE}, not {shown(value)}.")
    return value


def _parameters(document: Document, field: str) -> list[Parameter]:
    all_ = [(param, group.type) for group in document.search_space for param in group.params]
    if len(all_) > auto_search.MAX_PARAMETERS:
        told = f": search_space has {len(all_)} parameters; {auto_search.MAX_PARAMETERS} are possible."
        raise wrong(faults.BAD_SEARCH, field, told)
    for param, _ in all_:
        if not _NAME.fullmatch(param.name):
            told = f": the parameter {shown(param.name)} must have 1 to 64 letters, digits, `_`, `.` and `-`."
            raise wrong(faults.BAD_SEARCH, field, told)
    return [_parameter(param, param.type or kind or "", field) for param, kind in all_]


def _parameter(param: Param, kind: str, field: str) -> Parameter:
    match kind.removesuffix("_param"):
        case "discrete":
            values = tuple(
                float(value) if isinstance(value, str) and _POWER.fullmatch(value) else value
                for value in param.values or ()
            )
            if len(values) > auto_search.MAX_VALUES:
                told = f": {param.name} has {len(values)} values; {auto_search.MAX_VALUES} are possible."
                raise wrong(faults.BAD_SEARCH, field, told)
            numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
            return Parameter(param.name, "discrete" if numbers else "categorical", values=values)
        case "continuous":
            return _between(param, field)
        case _:
            told = f": the type of {param.name}, {shown(kind)}, must be continuous_param or discrete_param."
            raise wrong(faults.BAD_SEARCH, field, told)


def _between(param: Param, field: str) -> Parameter:
    """`base`: start and stop are exponents. Whole numbers at whole distances stay whole."""
    if param.start is None or param.stop is None:
        raise wrong(faults.BAD_SEARCH, field, f": {param.name} needs start and stop.")
    if param.base is not None:
        try:
            ends = sorted(float(param.base) ** end for end in (param.start, param.stop))
        except (ArithmeticError, TypeError):
            raise wrong(faults.BAD_SEARCH, field, f": {param.name} has no such powers.") from None
        return Parameter(param.name, "float", ends[0], ends[1], scale="log", points=param.num)
    low, high = sorted((param.start, param.stop))
    if isinstance(low, int) and isinstance(high, int) and param.num and 1 < param.num <= high - low + 1:
        step, rest = divmod(high - low, param.num - 1)
        if not rest and param.num <= auto_search.MAX_VALUES:
            values = tuple(itertools.islice(itertools.count(low, step), param.num))
            return Parameter(param.name, "discrete", values=values)
    try:
        return Parameter(param.name, "float", float(low), float(high), points=param.num)
    except OverflowError:
        raise wrong(faults.BAD_SEARCH, field, f": {param.name} has bounds that are too large.") from None


def template(name: str) -> str | None:
    """The content of one of TEMPLATES' files."""
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


def _template(space: str, algorithm: str, **told: Value) -> str:
    more = "".join(f"  {key}: {value}\n" for key, value in told.items())
    return _HEAD + space + _ALGORITHM.format(type=algorithm) + more + _TAIL


_TEMPLATES = {
    "Anneal": _template(_CONTINUOUS + _DISCRETE, "anneal_search", num_samples=8),
    "Bayes": _template(_CONTINUOUS, "bayes_opt_search", num_samples=8, kind="ucb"),
    "GridSearch": _template(_GRID + _DISCRETE, "grid_search"),
    "TPE": _template(_CONTINUOUS + _DISCRETE, "tpe_search", num_samples=8, n_initial_points=4),
}
TEMPLATES = tuple(_TEMPLATES)
