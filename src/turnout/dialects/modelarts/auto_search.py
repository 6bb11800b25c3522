"""Hyper-parameter search: whether what is asked for makes sense."""

import re
from collections.abc import Collection
from typing import Any

import msgspec

from turnout.dialects.modelarts import faults, parameters, wire
from turnout.dialects.modelarts.faults import shown, wrong

ALGORITHMS: dict[str, dict[str, str]] = {
    "bayes_opt_search": {
        "kind": "String",
        "kappa": "Float",
        "xi": "Float",
        "num_samples": "Integer",
        "seed": "Integer",
    },
    "tpe_search": {
        "gamma": "Float",
        "n_initial_points": "Integer",
        "num_samples": "Integer",
        "seed": "Integer",
    },
    "anneal_search": {
        "avg_best_idx": "Float",
        "shrink_coef": "Float",
        "num_samples": "Integer",
        "seed": "Integer",
    },
}
"""Each with its parameters and their types."""


def asked(search: wire.AutoSearch | None) -> bool:
    """The SDK sends an empty one where none is meant."""
    return search is not None and bool(search.reward_attrs or search.search_params or search.algo_configs)


def check(search: wire.AutoSearch, known: Collection[str], field: str) -> None:
    """`known`: the parameters that can be searched."""
    _check_metrics(search, f"{field}.reward_attrs")
    if not search.search_params:
        raise wrong(faults.BAD_SEARCH, f"{field}.search_params", " is missing: there is nothing to search.")
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
    for index, config in enumerate(search.algo_configs or ()):
        _check_algorithm(config, f"{field}.algo_configs[{index}]")


def kept(search: wire.AutoSearch | None) -> dict[str, Any]:
    """As answers show it, numbers as text."""
    if search is None:
        return {}
    spelt: dict[str, Any] = msgspec.to_builtins(search)
    for parameter in spelt.get("search_params") or ():
        for key in ("lower_bound", "upper_bound", "discrete_points_num"):
            if key in parameter:
                parameter[key] = parameters.text(parameter[key])
        if isinstance(parameter.get("discrete_values"), list):
            parameter["discrete_values"] = [parameters.text(value) for value in parameter["discrete_values"]]
    for config in spelt.get("algo_configs") or ():
        for param in config.get("params") or ():
            param["value"] = parameters.text(param.get("value"))
    return spelt


def _check_metrics(search: wire.AutoSearch, field: str) -> None:
    if not search.reward_attrs:
        raise wrong(faults.BAD_METRIC, field, " is missing: there is nothing to search for.")
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
            if not parameter.discrete_values:
                raise wrong(faults.BAD_SEARCH, f"{place}.discrete_values", " is missing.")
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
        kind = known.get(param.key or "")
        if kind is None:
            told = f": {shown(param.key)} must be one of {', '.join(known)}."
            raise wrong(faults.BAD_SEARCH, f"{where}.key", told)
        value = parameters.text(param.value)
        if not parameters.fits(kind, value):
            raise wrong(
                faults.BAD_SEARCH,
                f"{where}.value",
                f": {shown(value)} of {param.key} must be of type {kind}.",
            )
