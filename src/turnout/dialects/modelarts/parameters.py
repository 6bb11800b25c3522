"""The parameters of jobs and algorithms: their constraints, and a job's values laid over its algorithm's."""

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from turnout.dialects.modelarts import faults, wire
from turnout.dialects.modelarts.faults import shown, wrong

TYPES = ("String", "Integer", "Float", "Boolean")
VALID_TYPES = ("None", "Choice", "Range")
MAX_VALUE = 64 << 10

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_INTEGER = re.compile(r"[+-]?[0-9]{1,300}")
_BOOLEANS = frozenset({"true", "false", "0", "1", "yes", "no"})


class Codes(NamedTuple):
    type: int
    range: int
    choice: int


OF_JOB = Codes(faults.WRONG_TYPE, faults.OUT_OF_RANGE, faults.NOT_A_CHOICE)
OF_DEFAULT = Codes(faults.DEFAULT_TYPE, faults.DEFAULT_RANGE, faults.DEFAULT_RANGE)


def text(value: wire.Scalar | None) -> str:
    """As it stands on the wire; truth values as Python spells them, which is what the console sends."""
    return "" if value is None else str(value)


def declare(declared: Sequence[wire.Parameter] | None, field: str) -> list[dict[str, Any]]:
    """An algorithm's parameters as answers show them, their defaults checked."""
    _check_names(declared or (), field)
    kept = [_whole(parameter, wire.Parameter()) for parameter in declared or ()]
    for index, parameter in enumerate(kept):
        _check(parameter, f"{field}[{index}]", OF_DEFAULT)
    return kept


def own(asked: Sequence[wire.Parameter] | None, field: str) -> list[dict[str, Any]]:
    """The parameters of a job without an algorithm: they are what it says, constraints and all."""
    _check_names(asked or (), field)
    kept = [_whole(parameter, wire.Parameter()) for parameter in asked or ()]
    for index, parameter in enumerate(kept):
        _check(parameter, f"{field}[{index}]", OF_JOB)
        _check_given(parameter, f"{field}[{index}]")
    return kept


def merge(
    asked: Sequence[wire.Parameter] | None, declared: Sequence[wire.Parameter], more: bool, field: str
) -> list[dict[str, Any]]:
    """The algorithm's parameters with the job's values, then those that only the job has, if it may have `more`."""
    _check_names(asked or (), field)
    mine = {parameter.name: (index, parameter) for index, parameter in enumerate(asked or ())}
    kept: list[dict[str, Any]] = []
    for parameter in declared:
        index, given = mine.pop(parameter.name, (None, None))
        place = field if index is None else f"{field}[{index}]"
        merged = _whole(parameter, given or wire.Parameter())
        if given is not None:
            _check_editable(parameter, merged, place)
        _check(merged, place, OF_JOB)
        _check_given(merged, place)
        kept.append(merged)
    for index, parameter in mine.values():
        if not more:
            known = ", ".join(str(one.name) for one in declared) or "none"
            raise wrong(
                faults.CONTRADICTS,
                f"{field}[{index}].name",
                f": the algorithm has no parameter {parameter.name!r} and no parameters_customization; "
                f"it has {known}.",
            )
        kept += own([parameter], field)
    return kept


def check_values(parameter: dict[str, Any], values: Sequence[str], field: str, number: int) -> None:
    """That each could be the value of a parameter, as answers show it; `number` is the fault if one could not."""
    for value in values:
        _check(parameter | {"value": value}, field, Codes(number, number, number))


def values(kept: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """What the program is told. Nothing about a parameter without a value."""
    return [(parameter["name"], parameter["value"]) for parameter in kept if parameter["value"]]


def _check_names(parameters: Sequence[wire.Parameter], field: str) -> None:
    seen: set[str] = set()
    for index, parameter in enumerate(parameters):
        place = f"{field}[{index}].name"
        if parameter.name is None:
            raise wrong(faults.BAD_PARAM, place, " is missing.")
        if not _NAME.fullmatch(parameter.name):
            rule = "must have 1 to 64 characters: letters, digits, `_` and `-`."
            raise wrong(faults.BAD_PARAM, place, f": {shown(parameter.name)} {rule}")
        if parameter.name in seen:
            raise wrong(faults.NAME_TWICE, place, f": there are two parameters {parameter.name!r}.")
        seen.add(parameter.name)


def _whole(declared: wire.Parameter, given: wire.Parameter) -> dict[str, Any]:
    constraint = declared.constraint or wire.Constraint()
    i18n = given.i18n_description or declared.i18n_description
    spelt = i18n and {"language": i18n.language or "", "description": i18n.description or ""}
    value = declared.value if given.value is None else given.value
    return {
        "name": declared.name or given.name,
        "description": given.description or declared.description or "",
        "i18n_description": spelt,
        "value": text(value),
        "constraint": {
            "type": constraint.type or "String",
            "editable": constraint.editable is not False,
            "required": bool(constraint.required),
            "sensitive": bool(constraint.sensitive),
            "valid_type": constraint.valid_type or "None",
            "valid_range": [text(member) for member in constraint.valid_range or ()],
        },
    }


def _check_editable(declared: wire.Parameter, merged: dict[str, Any], place: str) -> None:
    default = text(declared.value)
    if not merged["constraint"]["editable"] and merged["value"] != default:
        raise wrong(
            faults.CONTRADICTS,
            f"{place}.value",
            f": {declared.name} is not editable; the algorithm sets it to {shown(default)}.",
        )


def _check_given(parameter: dict[str, Any], place: str) -> None:
    if parameter["constraint"]["required"] and not parameter["value"]:
        name = parameter["name"]
        raise wrong(faults.NO_DEFAULT, place, f": {name} is required and has neither a value nor a default.")


def _check(parameter: dict[str, Any], place: str, codes: Codes) -> None:
    constraint, value = parameter["constraint"], parameter["value"]
    kind, how = constraint["type"], constraint["valid_type"]
    _check_word(kind, TYPES, f"{place}.constraint.type")
    _check_word(how, VALID_TYPES, f"{place}.constraint.valid_type")
    bounds = _bounds(constraint, f"{place}.constraint.valid_range") if how == "Range" else None
    if not value:
        return
    if len(value) > MAX_VALUE or "\0" in value:
        rule = f" must have at most {MAX_VALUE} characters, and no NUL."
        raise wrong(faults.BAD_PARAM, f"{place}.value", rule)
    if not fits(kind, value):
        raise wrong(
            codes.type, f"{place}.value", f": {shown(value)} of {parameter['name']} must be of type {kind}."
        )
    if bounds and not bounds[0] <= float(value) <= bounds[1]:
        told = " to ".join(constraint["valid_range"])
        raise wrong(
            codes.range, f"{place}.value", f": {shown(value)} of {parameter['name']} must be from {told}."
        )
    if how == "Choice" and not _is_member(kind, value, constraint["valid_range"]):
        told = ", ".join(constraint["valid_range"]) or "nothing"
        raise wrong(
            codes.choice, f"{place}.value", f": {shown(value)} of {parameter['name']} must be one of {told}."
        )


def _check_word(word: str, known: Sequence[str], place: str) -> None:
    if word not in known:
        raise wrong(faults.BAD_PARAM, place, f": {shown(word)} must be one of {', '.join(known)}.")


def _bounds(constraint: dict[str, Any], place: str) -> tuple[float, float]:
    spelt = constraint["valid_range"]
    numbers = [number(bound) for bound in spelt]
    if constraint["type"] not in ("Integer", "Float"):
        raise wrong(
            faults.BAD_RANGE, place, f": a {constraint['type']} has no range; Integer and Float have."
        )
    if len(numbers) != 2 or numbers[0] is None or numbers[1] is None or numbers[0] > numbers[1]:
        raise wrong(faults.BAD_RANGE, place, f": {shown(spelt)} must be two numbers, the smaller one first.")
    return numbers[0], numbers[1]


def number(spelt: str) -> float | None:
    """A finite one."""
    try:
        found = float(spelt)
    except ValueError:
        return None
    return found if math.isfinite(found) and "_" not in spelt else None


def fits(kind: str, value: str) -> bool:
    match kind:
        case "Integer":
            return bool(_INTEGER.fullmatch(value))
        case "Float":
            return number(value) is not None
        case "Boolean":
            return value.lower() in _BOOLEANS
        case _:
            return True


def _is_member(kind: str, value: str, members: Sequence[str]) -> bool:
    if value in members:
        return True
    if kind not in ("Integer", "Float"):
        return False
    return any(number(member) == float(value) for member in members)
