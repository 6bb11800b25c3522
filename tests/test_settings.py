"""docs/settings.md has every setting of `config.py`, with its type and default, and no other."""

import re
import tomllib
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
import pytest

from tests.running import ROOT
from turnout import app, config

PAGE = (ROOT / "docs" / "settings.md").read_text()

KINDS = {str: "text", int: "whole number", float: "number", bool: "true, false", list: "list", dict: "table"}
Rows = dict[str, tuple[str, str]]


def rows(struct: type[msgspec.Struct]) -> Rows:
    """Setting -> (type, default), as the page spells them. Tables within the table have rows of their own."""
    fields = msgspec.structs.fields(struct)
    return {field.name: (kind(field.type), default(field)) for field in fields if not is_table(field.type)}


def kind(wanted: Any) -> str:
    origin = get_origin(wanted)
    if origin in (Union, UnionType):
        return " or ".join(kind(one) for one in get_args(wanted) if one is not NoneType)
    if origin is Literal:
        return ", ".join(f"`{word}`" if word else "empty" for word in get_args(wanted))
    return KINDS[origin or wanted]


def default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    match value:
        case None:
            return "unset"
        case bool():
            return f"`{str(value).lower()}`"
        case str():
            return f"`{value}`" if value else "empty"
        case int() | float():
            return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"
        case _:
            return "empty" if not value else f"`{value}`"


def is_table(wanted: Any) -> bool:
    """A table, or tables by name: they have headings of their own."""
    inner = get_args(wanted)[-1] if get_origin(wanted) is dict else wanted
    return isinstance(inner, type) and issubclass(inner, msgspec.Struct)


def heading(table: str) -> str:
    return f"[{table.replace('[...]', '.X').rstrip('.')}]" if table else "Top level"


def documented() -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for part in PAGE.split("\n## ")[1:]:
        lines = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| .+ \|$", part, re.MULTILINE)
        if lines:
            found[part.partition("\n")[0]] = {name: (kind, default) for name, kind, default in lines}
    return found


def tables() -> dict[str, Rows]:
    """Tables of the same kind, such as those of buckets and of schemes, share a heading."""
    headings: dict[type[msgspec.Struct], list[str]] = {}
    for table, struct in config._TABLES.items():
        headings.setdefault(struct, []).append(heading(table))
    return {" and ".join(names): rows(struct) for struct, names in headings.items() if rows(struct)}


TABLES = tables()


@pytest.mark.parametrize("table", TABLES)
def test_every_setting_is_documented_with_its_type_and_default(table: str):
    assert documented().get(table) == TABLES[table]


def test_no_other_setting_is_documented():
    assert set(documented()) == set(TABLES)


def test_every_variable_is_documented():
    variables = set(re.findall(r"`(TURNOUT_[A-Z_]+)`", PAGE))
    assert set(config._VARIABLES) <= variables


def test_the_example_is_valid(tmp_path):
    [example] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert tomllib.loads(example)
    (tmp_path / "turnout.toml").write_text(example)
    app.check(config.load(str(tmp_path / "turnout.toml")))
