"""Messages for settings that cannot be read, in the words of the file: `[server] port must be a whole number`."""

import difflib
import re
from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

Tables = Mapping[str, type[msgspec.Struct]]
"""The tables of the file by msgspec's name of their place; the empty name is the top level."""

_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}


def explain(error: str, file: str | None, tables: Tables) -> str:
    """The message of msgspec, with a suggestion for a misspelt name."""
    where = f"{file}: " if file else "settings: "
    problem, _, place = error.partition(" - at `$")
    place = place.rstrip("`").lstrip(".")
    name = _spelt(place, tables)
    unknown = re.search(r"unknown field `(\w+)`", problem)
    if unknown:
        heading, nearest = name or "[top level]", _nearest(unknown[1], place, tables)
        return f"{where}{heading} has no setting {unknown[1]}; {nearest}"
    value = re.fullmatch(r"Invalid enum value (.*)", problem)
    if value:
        return f"{where}{name} must be {_allowed(place, tables)}, not {value[1]}"
    kinds = re.fullmatch(r"Expected `(.*)`, got `(.*)`", problem)
    if kinds is None:
        return f"{where}{name}: {problem}" if name else where + problem
    wanted = _allowed(place, tables) or _kind(kinds[1])
    return f"{where}{name} must be {wanted}, not {_kind(kinds[2])}"


def _nearest(name: str, table: str, tables: Tables) -> str:
    known = list(_fields(table, tables))
    close = difflib.get_close_matches(name, known, 1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"


def _spelt(place: str, tables: Tables) -> str:
    """`server.port` -> `[server] port`, as it stands in the file. msgspec does not name the table among several."""
    if place.endswith("[...]") and place not in tables:
        return f"[{place.removesuffix('[...]').replace('[...]', '.…')}] …"
    table, _, field = ("", "", place) if place in tables else place.rpartition(".")
    if place in tables:
        return _heading(place) if place else ""
    heading = f"{_heading(table)} " if table else ""
    return heading + re.sub(r"\[.*\]", "", field)


def _heading(table: str) -> str:
    return f"[{table.replace('[...]', '.…').rstrip('.')}]"


def _fields(table: str, tables: Tables) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(tables.get(table, tables[""]))}


def _allowed(place: str, tables: Tables) -> str:
    """The words that a setting may be: `auto, bubblewrap or none`."""
    table, _, field = place.rpartition(".")
    kind = _fields(table, tables).get(field)
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    if not words:
        return ""
    words += ["a whole number"] if int in kinds else []
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _kind(names: str) -> str:
    return " or ".join(_KINDS.get(name, name) for name in names.split(" | ") if name != "null")
