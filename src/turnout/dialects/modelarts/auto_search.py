"""Hyper-parameter search as a job's `policies.auto_search` asks for it: whether it makes sense, and as our Search."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from turnout.dialects.modelarts import faults, parameters, wire
from turnout.dialects.modelarts.faults import shown, wrong
from turnout.errors import Invalid
from turnout.job import Search
from turnout.job.algorithms import ALGORITHMS as LIBRARIES
from turnout.job.algorithms import Setting
from turnout.job.algorithms import check as check_sense
from turnout.job.search import Algorithm, Metric, Parameter, Value, levels, printed, read_skip

NAMES = ("bayes_opt_search", "tpe_search", "anneal_search")
USUAL = NAMES[0]
TYPES = {str: "String", int: "Integer", float: "Float"}
ALGORITHMS: dict[str, dict[str, Setting]] = {name: LIBRARIES[name] for name in NAMES}
"""Those that ModelArts knows by name, each with what it can be told."""

MARKS = (b'"auto_search"', b'"autosearch_config_path"')
"""What is kept of every search has one of these."""

MAX_METRICS = 16
MAX_PARAMETERS = 64
MAX_ALGORITHMS = 16
MAX_VALUES = 1000


def asked(search: wire.AutoSearch | None) -> bool:
    """The SDK sends an empty one where none is meant."""
    return search is not None and bool(search.reward_attrs or search.search_params or search.algo_configs)


def is_search(kept: Mapping[str, Any]) -> bool:
    """Whether the job of which this is kept tries parameters, and has trials instead of tasks."""
    algorithm = kept.get("algorithm") or {}
    if kept.get("tasks"):
        return False
    return bool(
        (algorithm.get("policies") or {}).get("auto_search") or algorithm.get("autosearch_config_path")
    )


def check(search: wire.AutoSearch, known: Collection[str], field: str) -> None:
    """`known`: the parameters that can be searched."""
    _check_metrics(search, f"{field}.reward_attrs")
    if not search.search_params:
        raise wrong(faults.BAD_SEARCH, f"{field}.search_params", " is missing: there is nothing to search.")
    _check_count(search.search_params, MAX_PARAMETERS, f"{field}.search_params")
    seen: set[str] = set()
    for index, parameter in enumerate(search.search_params):
        place = f"{field}.search_params[{index}]"
        if not parameter.name or parameter.name not in known:
            has = ", ".join(known) or "of which there are none"
            told = f": {shown(parameter.name)} must be one of the parameters, {has}."
            raise wrong(faults.BAD_SEARCH, f"{place}.name", told)
        if parameter.name in seen:
            raise wrong(faults.BAD_SEARCH, f"{place}.name", f": {parameter.name} is searched already.")
        seen.add(parameter.name)
        _check_space(parameter, place)
    _check_count(search.algo_configs or (), MAX_ALGORITHMS, f"{field}.algo_configs")
    for index, config in enumerate(search.algo_configs or ()):
        _check_algorithm(config, f"{field}.algo_configs[{index}]")
    try:
        read_skip(search.skip_search_params or "")
    except ValueError as error:
        raise wrong(faults.BAD_SEARCH, f"{field}.skip_search_params", f": {error}.") from None


def of(search: wire.AutoSearch, merged: Sequence[dict[str, Any]], field: str) -> Search:
    """What is to be tried. `merged`: the job's parameters as answers show them."""
    known = {parameter["name"]: parameter for parameter in merged}
    check(search, known, field)
    found = Search(
        parameters=tuple(
            _parameter(one, known[one.name or ""], f"{field}.search_params[{index}]")
            for index, one in enumerate(search.search_params or ())
        ),
        metrics=tuple(_metric(one) for one in search.reward_attrs or ()),
        algorithms=tuple(_algorithm(one) for one in search.algo_configs or ()) or (Algorithm(USUAL),),
        skip=read_skip(search.skip_search_params or ""),
    )
    return sensible(found, field)


def sensible(search: Search, field: str) -> Search:
    """The same one. Raises Invalid in ModelArts' terms if it cannot be done."""
    try:
        check_sense(search)
    except Invalid as error:
        raise wrong(faults.BAD_SEARCH, field, f": {error.message}.") from None
    return search


def spelt(value: Value) -> str:
    """A value as the program is told of it."""
    return value if isinstance(value, str) else parameters.text(value)


def kept(search: wire.AutoSearch | None) -> dict[str, Any]:
    """As answers show it, numbers as text."""
    if search is None:
        return {}
    whole: dict[str, Any] = msgspec.to_builtins(search)
    for parameter in whole.get("search_params") or ():
        for key in ("lower_bound", "upper_bound", "discrete_points_num"):
            if key in parameter:
                parameter[key] = parameters.text(parameter[key])
        if isinstance(parameter.get("discrete_values"), list):
            parameter["discrete_values"] = [parameters.text(value) for value in parameter["discrete_values"]]
    for config in whole.get("algo_configs") or ():
        for param in config.get("params") or ():
            param["value"] = parameters.text(param.get("value"))
    return whole


def _check_count(found: Sequence[Any], most: int, field: str) -> None:
    if len(found) > most:
        raise wrong(faults.BAD_SEARCH, field, f" has {len(found)} entries; {most} are possible.")


def _check_metrics(search: wire.AutoSearch, field: str) -> None:
    if not search.reward_attrs:
        raise wrong(faults.BAD_METRIC, field, " is missing: there is nothing to search for.")
    _check_count(search.reward_attrs, MAX_METRICS, field)
    seen: set[str] = set()
    for index, metric in enumerate(search.reward_attrs):
        place = f"{field}[{index}]"
        if not metric.name or metric.name in seen:
            raise wrong(
                faults.BAD_METRIC, f"{place}.name", f": {shown(metric.name)} must be a name of its own."
            )
        seen.add(metric.name)
        if metric.mode not in ("max", "min"):
            raise wrong(faults.BAD_METRIC, f"{place}.mode", f": {shown(metric.mode)} must be max or min.")
        try:
            re.compile(metric.regex or "")
        except (re.error, RecursionError, OverflowError) as error:
            raise wrong(faults.BAD_METRIC, f"{place}.regex", f" is no regular expression: {error}.") from None


def _check_space(parameter: wire.SearchParam, place: str) -> None:
    match parameter.param_type:
        case "continuous":
            low = parameters.number(parameters.text(parameter.lower_bound))
            high = parameters.number(parameters.text(parameter.upper_bound))
            if low is None or high is None or low >= high:
                raise wrong(
                    faults.BAD_SEARCH,
                    f"{place}.lower_bound",
                    " and upper_bound must be two numbers, the smaller first.",
                )
            points = parameters.text(parameter.discrete_points_num)
            if points and not re.fullmatch("[0-9]{1,6}", points):
                raise wrong(
                    faults.BAD_SEARCH, f"{place}.discrete_points_num", f": {shown(points)} must be a number."
                )
        case "discrete":
            values = _values(parameter)
            if not values:
                raise wrong(faults.BAD_SEARCH, f"{place}.discrete_values", " is missing.")
            _check_count(values, MAX_VALUES, f"{place}.discrete_values")
        case other:
            raise wrong(
                faults.WRONG_TYPE, f"{place}.param_type", f": {shown(other)} must be continuous or discrete."
            )


def _check_algorithm(config: wire.AlgoConfig, place: str) -> None:
    known = ALGORITHMS.get(config.name or "")
    if known is None:
        told = f": {shown(config.name)} must be one of {', '.join(ALGORITHMS)}."
        raise wrong(faults.BAD_SEARCH, f"{place}.name", told)
    for index, param in enumerate(config.params or ()):
        where = f"{place}.params[{index}]"
        setting = known.get(param.key or "")
        if setting is None:
            told = f": {shown(param.key)} must be one of {', '.join(known)}."
            raise wrong(faults.BAD_SEARCH, f"{where}.key", told)
        value, kind = parameters.text(param.value), TYPES[type(setting.default)]
        if not parameters.fits(kind, value):
            raise wrong(
                faults.BAD_SEARCH,
                f"{where}.value",
                f": {shown(value)} of {param.key} must be of type {kind}.",
            )


def _metric(metric: wire.RewardAttr) -> Metric:
    name = metric.name or ""
    return Metric(name, "min" if metric.mode == "min" else "max", metric.regex or printed(name))


def _algorithm(config: wire.AlgoConfig) -> Algorithm:
    name = config.name or ""
    told: dict[str, Value] = {}
    for param in config.params or ():
        key = param.key or ""
        told[key] = type(ALGORITHMS[name][key].default)(parameters.text(param.value))
    return Algorithm(name, told)


def _parameter(one: wire.SearchParam, declared: dict[str, Any], place: str) -> Parameter:
    """A parameter that is a whole number stays one. What is tried must be what the parameter may be."""
    name, kind = one.name or "", declared["constraint"]["type"]
    if one.param_type == "discrete":
        values = _values(one)
        parameters.check_values(declared, values, f"{place}.discrete_values", faults.BAD_SEARCH)
        numbers = kind in ("Integer", "Float") or all(
            parameters.number(value) is not None for value in values
        )
        return Parameter(name, "discrete" if numbers else "categorical", values=tuple(values))
    low, high = parameters.text(one.lower_bound), parameters.text(one.upper_bound)
    points = int(parameters.text(one.discrete_points_num) or 0) or None
    parameters.check_values(declared, [low, high], f"{place}.lower_bound", faults.BAD_SEARCH)
    found = Parameter(name, "float", float(low), float(high), points=points)
    if kind != "Integer":
        return found
    if points is None or points > float(high) - float(low):
        return msgspec.structs.replace(found, kind="integer", points=None)
    near = tuple(dict.fromkeys(round(float(level)) for level in levels(found) or ()))
    return Parameter(name, "discrete", values=near)


def _values(parameter: wire.SearchParam) -> list[str]:
    """A list in requests, text in the tables of answers: `16,32` or `[16, 32]`."""
    values = parameter.discrete_values or []
    if isinstance(values, str):
        return [part.strip(" \"'") for part in values.strip(" []").split(",") if part.strip(" \"'")]
    return [parameters.text(value) for value in values]
