"""A search as a job's `policies.auto_search` defines it: checks it, and translates it into a Search."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from turnout.dialects.modelarts import errors, wire
from turnout.dialects.modelarts.errors import invalid, quoted
from turnout.dialects.modelarts.jobs import parameters
from turnout.errors import Invalid
from turnout.job import Search
from turnout.job.algorithms import ALGORITHMS as LIBRARIES
from turnout.job.algorithms import Setting
from turnout.job.algorithms import check as check_search
from turnout.job.search import Algorithm, Metric, Parameter, Value, default_regex, levels, parse_skip_rules

NAMES = ("bayes_opt_search", "tpe_search", "anneal_search")
DEFAULT = NAMES[0]
TYPES = {str: "String", int: "Integer", float: "Float"}
ALGORITHMS: dict[str, dict[str, Setting]] = {name: LIBRARIES[name] for name in NAMES}
"""The algorithms that ModelArts has, each with its settings."""

MARKS = (b'"auto_search"', b'"autosearch_config_path"')
"""Every stored document of a search contains one of these."""

MAX_METRICS = 16
MAX_PARAMETERS = 64
MAX_ALGORITHMS = 16
MAX_VALUES = 1000


def is_given(search: wire.AutoSearch | None) -> bool:
    """Whether the request defines a search. Clients also send an empty object for a job without a search."""
    return search is not None and bool(
        search.reward_attrs or search.search_params or search.algo_configs or search.skip_search_params
    )


def is_search(stored: Mapping[str, Any]) -> bool:
    """Whether a stored document is a search, which has trials instead of tasks."""
    algorithm = stored.get("algorithm") or {}
    if stored.get("tasks"):
        return False
    return bool(
        (algorithm.get("policies") or {}).get("auto_search") or algorithm.get("autosearch_config_path")
    )


def check(search: wire.AutoSearch, known: Collection[str], field: str) -> None:
    """`known`: the names of the job's parameters."""
    _check_metrics(search, f"{field}.reward_attrs")
    if not search.search_params:
        raise invalid(
            errors.BAD_SEARCH, f"{field}.search_params", " is missing: name at least one parameter."
        )
    _check_count(search.search_params, MAX_PARAMETERS, f"{field}.search_params")
    seen: set[str] = set()
    for index, parameter in enumerate(search.search_params):
        field_path = f"{field}.search_params[{index}]"
        if not parameter.name or parameter.name not in known:
            names = ", ".join(known) or "none"
            detail = f": {quoted(parameter.name)} is not a parameter of the job; its parameters are: {names}."
            raise invalid(errors.BAD_SEARCH, f"{field_path}.name", detail)
        if parameter.name in seen:
            raise invalid(errors.BAD_SEARCH, f"{field_path}.name", f": {parameter.name} occurs twice.")
        seen.add(parameter.name)
        _check_space(parameter, field_path)
    _check_count(search.algo_configs or (), MAX_ALGORITHMS, f"{field}.algo_configs")
    for index, config in enumerate(search.algo_configs or ()):
        _check_algorithm(config, f"{field}.algo_configs[{index}]")
    _check_skip(search.skip_search_params or "", seen, f"{field}.skip_search_params")


def to_search(search: wire.AutoSearch, merged: Sequence[dict[str, Any]], field: str) -> Search:
    """`merged`: the job's stored parameters."""
    known = {parameter["name"]: parameter for parameter in merged}
    check(search, known, field)
    left_out, rules = _read_skip(search.skip_search_params or "")
    found = Search(
        parameters=tuple(
            _parameter(param, known[param.name or ""], f"{field}.search_params[{index}]")
            for index, param in enumerate(search.search_params or ())
            if param.name not in left_out
        ),
        metrics=tuple(_metric(attr) for attr in search.reward_attrs or ()),
        algorithms=tuple(_algorithm(config) for config in search.algo_configs or ()) or (Algorithm(DEFAULT),),
        skip=rules,
    )
    return checked(found, field)


def checked(search: Search, field: str) -> Search:
    """Returns the search. Raises Invalid with ModelArts' code if the search is invalid."""
    try:
        check_search(search)
    except Invalid as error:
        raise invalid(errors.BAD_SEARCH, field, f": {error.message}.") from None
    return search


def as_argument(value: Value) -> str:
    """A value as the program gets it."""
    return value if isinstance(value, str) else parameters.as_text(value)


def stored(search: wire.AutoSearch | None) -> dict[str, Any]:
    """The stored `auto_search`, with numbers as text."""
    if search is None:
        return {}
    document: dict[str, Any] = msgspec.to_builtins(search)
    for parameter in document.get("search_params") or ():
        for key in ("lower_bound", "upper_bound", "discrete_points_num"):
            if key in parameter:
                parameter[key] = parameters.as_text(parameter[key])
        if isinstance(parameter.get("discrete_values"), list):
            parameter["discrete_values"] = [
                parameters.as_text(value) for value in parameter["discrete_values"]
            ]
    for config in document.get("algo_configs") or ():
        for param in config.get("params") or ():
            param["value"] = parameters.as_text(param.get("value"))
    return document


def _check_count(found: Sequence[Any], maximum: int, field: str) -> None:
    if len(found) > maximum:
        raise invalid(errors.BAD_SEARCH, field, f" has {len(found)} entries; at most {maximum} are allowed.")


def _check_metrics(search: wire.AutoSearch, field: str) -> None:
    if not search.reward_attrs:
        raise invalid(errors.BAD_METRIC, field, " is missing: name at least one metric.")
    _check_count(search.reward_attrs, MAX_METRICS, field)
    seen: set[str] = set()
    for index, metric in enumerate(search.reward_attrs):
        field_path = f"{field}[{index}]"
        if not metric.name or metric.name in seen:
            raise invalid(
                errors.BAD_METRIC,
                f"{field_path}.name",
                f": {quoted(metric.name)} must be a unique name.",
            )
        seen.add(metric.name)
        if metric.mode not in ("max", "min"):
            raise invalid(
                errors.BAD_METRIC, f"{field_path}.mode", f": {quoted(metric.mode)} must be max or min."
            )
        try:
            re.compile(metric.regex or "")
        except (re.error, RecursionError, OverflowError) as error:
            raise invalid(
                errors.BAD_METRIC, f"{field_path}.regex", f" is not a regular expression: {error}."
            ) from None


def _kind(parameter: wire.SearchParam) -> str:
    """`param_type`, or what the other fields imply: Terraform's provider leaves it out."""
    return parameter.param_type or ("discrete" if parameter.discrete_values else "continuous")


def _check_space(parameter: wire.SearchParam, field_path: str) -> None:
    match _kind(parameter):
        case "continuous":
            low = parameters.parse_number(parameters.as_text(parameter.lower_bound))
            high = parameters.parse_number(parameters.as_text(parameter.upper_bound))
            if low is None or high is None or low >= high:
                raise invalid(
                    errors.BAD_SEARCH,
                    f"{field_path}.lower_bound",
                    " and upper_bound must be two numbers, the smaller first.",
                )
            points = parameters.as_text(parameter.discrete_points_num)
            if points and not re.fullmatch("[0-9]{1,6}", points):
                raise invalid(
                    errors.BAD_SEARCH,
                    f"{field_path}.discrete_points_num",
                    f": {quoted(points)} must be a number.",
                )
        case "discrete":
            values = _values(parameter)
            if not values:
                raise invalid(errors.BAD_SEARCH, f"{field_path}.discrete_values", " is missing.")
            _check_count(values, MAX_VALUES, f"{field_path}.discrete_values")
        case other:
            raise invalid(
                errors.WRONG_TYPE,
                f"{field_path}.param_type",
                f": {quoted(other)} must be continuous or discrete.",
            )


def _check_algorithm(config: wire.AlgoConfig, field_path: str) -> None:
    known = ALGORITHMS.get(config.name or "")
    if known is None:
        detail = f": {quoted(config.name)} must be one of {', '.join(ALGORITHMS)}."
        raise invalid(errors.BAD_SEARCH, f"{field_path}.name", detail)
    for index, param in enumerate(config.params or ()):
        param_path = f"{field_path}.params[{index}]"
        setting = known.get(param.key or "")
        if setting is None:
            detail = f": {quoted(param.key)} must be one of {', '.join(known)}."
            raise invalid(errors.BAD_SEARCH, f"{param_path}.key", detail)
        value, kind = parameters.as_text(param.value), TYPES[type(setting.default)]
        if param.type and param.type != kind and not (param.type == "Integer" and kind == "Float"):
            detail = f": {quoted(param.type)} must be {kind}, which is the type of {param.key}."
            raise invalid(errors.BAD_SEARCH, f"{param_path}.type", detail)
        if not parameters.has_type(kind, value):
            raise invalid(
                errors.BAD_SEARCH,
                f"{param_path}.value",
                f": {quoted(value)} of {param.key} must be of type {kind}.",
            )


def _read_skip(text: str) -> tuple[set[str], tuple[dict[str, str], ...]]:
    """The parameters to leave out of the search, and the rules for points to leave out: `lr;batch=128`.

    Raises ValueError, whose text is for the user.
    """
    left_out: set[str] = set()
    rules: list[str] = []
    for part in text.split(";"):
        names = [name.strip() for name in part.split(",") if name.strip()]
        if any("=" in name for name in names):
            rules.append(part)
        else:
            left_out |= set(names)
    return left_out, parse_skip_rules(";".join(rules))


def _check_skip(text: str, searched: Collection[str], field: str) -> None:
    try:
        left_out, rules = _read_skip(text)
    except ValueError as error:
        raise invalid(errors.BAD_SEARCH, field, f": {error}.") from None
    named = left_out | {name for rule in rules for name in rule}
    if unknown := sorted(named - set(searched)):
        detail = f": {quoted(unknown[0])} must be one of search_params: {', '.join(searched)}."
        raise invalid(errors.BAD_SEARCH, field, detail)
    if left_out >= set(searched):
        raise invalid(errors.BAD_SEARCH, field, " must leave at least one parameter to search.")


def _metric(metric: wire.RewardAttr) -> Metric:
    name = metric.name or ""
    return Metric(name, "min" if metric.mode == "min" else "max", metric.regex or default_regex(name))


def _algorithm(config: wire.AlgoConfig) -> Algorithm:
    name = config.name or ""
    detail: dict[str, Value] = {}
    for param in config.params or ():
        key = param.key or ""
        detail[key] = type(ALGORITHMS[name][key].default)(parameters.as_text(param.value))
    return Algorithm(name, detail)


def _parameter(param: wire.SearchParam, declared: dict[str, Any], field_path: str) -> Parameter:
    """Checks that the parameter's constraint allows the values. An Integer stays a whole number."""
    name, kind = param.name or "", declared["constraint"]["type"]
    if _kind(param) == "discrete":
        values = _values(param)
        parameters.check_values(declared, values, f"{field_path}.discrete_values", errors.BAD_SEARCH)
        numbers = kind in ("Integer", "Float") or all(
            parameters.parse_number(value) is not None for value in values
        )
        return Parameter(name, "discrete" if numbers else "categorical", values=tuple(values))
    low, high = parameters.as_text(param.lower_bound), parameters.as_text(param.upper_bound)
    points = int(parameters.as_text(param.discrete_points_num) or 0) or None
    parameters.check_values(declared, [low, high], f"{field_path}.lower_bound", errors.BAD_SEARCH)
    found = Parameter(name, "float", float(low), float(high), points=points)
    if kind != "Integer":
        return found
    if points is None or points > float(high) - float(low):
        return msgspec.structs.replace(found, kind="integer", points=None)
    rounded = tuple(dict.fromkeys(round(float(level)) for level in levels(found) or ()))
    return Parameter(name, "discrete", values=rounded)


def _values(parameter: wire.SearchParam) -> list[str]:
    """Requests have a list. The answer's tables have text: `16,32` or `[16, 32]`."""
    values = parameter.discrete_values or []
    if isinstance(values, str):
        return [part.strip(" \"'") for part in values.strip(" []").split(",") if part.strip(" \"'")]
    return [parameters.as_text(value) for value in values]
