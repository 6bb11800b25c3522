"""The parameters of jobs and algorithms: checks their constraints, and merges a job's values with its algorithm's."""

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from turnout.dialects.modelarts import decode, errors, wire
from turnout.dialects.modelarts.errors import invalid, quoted

TYPES = ("String", "Integer", "Float", "Boolean")
VALID_TYPES = ("None", "Choice", "Range")
MAX_VALUE = 64 << 10

_INTEGER = re.compile(r"[+-]?[0-9]{1,300}")
_BOOLEANS = frozenset({"true", "false", "0", "1", "yes", "no"})


class Codes(NamedTuple):
    type: str
    range: str
    choice: str


OF_JOB = Codes(errors.WRONG_TYPE, errors.OUT_OF_RANGE, errors.NOT_A_CHOICE)
OF_DEFAULT = Codes(errors.DEFAULT_TYPE, errors.DEFAULT_RANGE, errors.DEFAULT_RANGE)


def as_text(value: wire.Scalar | None) -> str:
    """A value as text. Booleans are `True` and `False`, as the console sends them."""
    return "" if value is None else str(value)


def for_algorithm(declared: Sequence[wire.Parameter] | None, field: str) -> list[dict[str, Any]]:
    """Checks an algorithm's parameters and their defaults. Returns them as stored."""
    _check_names(declared or (), field)
    stored = [_stored(parameter, wire.Parameter()) for parameter in declared or ()]
    for index, parameter in enumerate(stored):
        _check(parameter, f"{field}[{index}]", OF_DEFAULT)
    for parameter, given in zip(stored, declared or (), strict=True):
        if given.constraint and given.constraint.editable is None:
            # Answers say false, as the cloud does, but jobs may change it.
            del parameter["constraint"]["editable"]
    return stored


def show_editable(stored: Sequence[dict[str, Any]]) -> None:
    """Completes an algorithm's stored parameters for an answer."""
    for parameter in stored:
        parameter["constraint"].setdefault("editable", False)


def for_job(requested: Sequence[wire.Parameter] | None, field: str) -> list[dict[str, Any]]:
    """Checks the parameters of a job without an algorithm. Returns them as stored."""
    _check_names(requested or (), field)
    stored = [_stored(parameter, wire.Parameter()) for parameter in requested or ()]
    for index, parameter in enumerate(stored):
        _check(parameter, f"{field}[{index}]", OF_JOB)
        _check_has_value(parameter, f"{field}[{index}]")
    return stored


def merge(
    requested: Sequence[wire.Parameter] | None,
    declared: Sequence[wire.Parameter],
    allow_more: bool,
    field: str,
) -> list[dict[str, Any]]:
    """The algorithm's parameters with the job's values, then the job's own if `allow_more`."""
    _check_names(requested or (), field)
    given_by_name = {parameter.name: (index, parameter) for index, parameter in enumerate(requested or ())}
    stored: list[dict[str, Any]] = []
    for parameter in declared:
        index, given = given_by_name.pop(parameter.name, (None, None))
        field_path = field if index is None else f"{field}[{index}]"
        merged = _stored(parameter, given or wire.Parameter())
        if given is not None:
            _check_editable(parameter, merged, field_path)
        _check(merged, field_path, OF_JOB)
        _check_has_value(merged, field_path)
        stored.append(merged)
    for index, parameter in given_by_name.values():
        if not allow_more:
            known = ", ".join(str(declaration.name) for declaration in declared) or "none"
            raise invalid(
                errors.CONTRADICTS,
                f"{field}[{index}].name",
                f": the algorithm has no parameter {parameter.name!r} and no parameters_customization; "
                f"it has {known}.",
            )
        stored += for_job([parameter], field)
    return stored


def check_values(parameter: dict[str, Any], values: Sequence[str], field: str, code: str) -> None:
    """Raises Invalid with `code` if one of the values cannot be the parameter's."""
    for value in values:
        _check(parameter | {"value": value}, field, Codes(code, code, code))


def arguments(stored: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """(name, value) for the program. Parameters without a value are left out."""
    return [(parameter["name"], parameter["value"]) for parameter in stored if parameter["value"]]


def _check_names(parameters: Sequence[wire.Parameter], field: str) -> None:
    names = [parameter.name for parameter in parameters]
    decode.check_names(names, field, "parameters", errors.INVALID, errors.DUPLICATE_NAME)


def _stored(declared: wire.Parameter, given: wire.Parameter) -> dict[str, Any]:
    constraint = declared.constraint or wire.Constraint()
    i18n = given.i18n_description or declared.i18n_description
    i18n_description = i18n and {"language": i18n.language or "", "description": i18n.description or ""}
    value = declared.value if given.value is None else given.value
    return {
        "name": declared.name or given.name,
        "description": given.description or declared.description or "",
        "i18n_description": i18n_description,
        "value": as_text(value),
        "constraint": {
            "type": constraint.type or "String",
            "editable": bool(constraint.editable) if declared.constraint else True,
            "required": bool(constraint.required),
            "sensitive": bool(constraint.sensitive),
            "valid_type": constraint.valid_type or "None",
            "valid_range": [as_text(member) for member in constraint.valid_range or ()],
        },
    }


def _check_editable(declared: wire.Parameter, merged: dict[str, Any], field_path: str) -> None:
    default = as_text(declared.value)
    fixed = declared.constraint is not None and declared.constraint.editable is False
    if fixed and merged["value"] != default:
        raise invalid(
            errors.CONTRADICTS,
            f"{field_path}.value",
            f": {declared.name} is not editable; the algorithm sets it to {quoted(default)}.",
        )


def _check_has_value(parameter: dict[str, Any], field_path: str) -> None:
    if parameter["constraint"]["required"] and not parameter["value"]:
        name = parameter["name"]
        raise invalid(
            errors.NO_VALUE, field_path, f": {name} is required and has neither a value nor a default."
        )


def _check(parameter: dict[str, Any], field_path: str, codes: Codes) -> None:
    constraint, value = parameter["constraint"], parameter["value"]
    kind, valid_type = constraint["type"], constraint["valid_type"]
    _check_word(kind, TYPES, f"{field_path}.constraint.type")
    _check_word(valid_type, VALID_TYPES, f"{field_path}.constraint.valid_type")
    bounds = _bounds(constraint, f"{field_path}.constraint.valid_range") if valid_type == "Range" else None
    if not value:
        return
    if len(value) > MAX_VALUE or "\0" in value:
        rule = f" must have at most {MAX_VALUE} characters, and no NUL."
        raise invalid(errors.INVALID, f"{field_path}.value", rule)
    if not has_type(kind, value):
        raise invalid(
            codes.type,
            f"{field_path}.value",
            f": {quoted(value)} of {parameter['name']} must be of type {kind}.",
        )
    if bounds and not bounds[0] <= float(value) <= bounds[1]:
        limits = " to ".join(constraint["valid_range"])
        raise invalid(
            codes.range,
            f"{field_path}.value",
            f": {quoted(value)} of {parameter['name']} must be from {limits}.",
        )
    if valid_type == "Choice" and not _is_member(kind, value, constraint["valid_range"]):
        choices = ", ".join(constraint["valid_range"]) or "an empty list"
        raise invalid(
            codes.choice,
            f"{field_path}.value",
            f": {quoted(value)} of {parameter['name']} must be one of {choices}.",
        )


def _check_word(word: str, known: Sequence[str], field_path: str) -> None:
    if word not in known:
        raise invalid(errors.INVALID, field_path, f": {quoted(word)} must be one of {', '.join(known)}.")


def _bounds(constraint: dict[str, Any], field_path: str) -> tuple[float, float]:
    valid_range = constraint["valid_range"]
    numbers = [parse_number(bound) for bound in valid_range]
    if constraint["type"] not in ("Integer", "Float"):
        raise invalid(
            errors.BAD_RANGE,
            field_path,
            f": a {constraint['type']} cannot have a range; only Integer and Float can.",
        )
    if len(numbers) != 2 or numbers[0] is None or numbers[1] is None or numbers[0] > numbers[1]:
        raise invalid(
            errors.BAD_RANGE,
            field_path,
            f": {quoted(valid_range)} must be two numbers, the smaller one first.",
        )
    return numbers[0], numbers[1]


def parse_number(text: str) -> float | None:
    """A finite number, or None."""
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) and "_" not in text else None


def has_type(kind: str, value: str) -> bool:
    match kind:
        case "Integer":
            return bool(_INTEGER.fullmatch(value))
        case "Float":
            return parse_number(value) is not None
        case "Boolean":
            return value.lower() in _BOOLEANS
        case _:
            return True


def _is_member(kind: str, value: str, members: Sequence[str]) -> bool:
    if value in members:
        return True
    if kind not in ("Integer", "Float"):
        return False
    return any(parse_number(member) == float(value) for member in members)
