"""Reads and checks the fields of a request: its JSON body as a struct, its query parameters one by one."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeVar

import msgspec
from starlette.requests import Request

from turnout.dialects.modelarts import decode
from turnout.dialects.modelarts.errors import BAD_QUERY, INVALID, UNSUPPORTED_SORT
from turnout.errors import Invalid

Document = TypeVar("Document", bound=msgspec.Struct)
Query = Mapping[str, str]

MAX_PAGE = 2**31 - 1


async def read(request: Request, kind: type[Document]) -> Document:
    """Raises Invalid that names the field as the caller spelled it."""
    return decode.read(_decoder(kind), await request.body())


def text(name: str, value: str | None, longest: int, pattern: str = "", rule: str = "") -> str:
    """Checks a text field. None counts as empty."""
    value = value or ""
    if len(value) > longest:
        raise Invalid(
            f"{name} must have at most {longest} characters, not {len(value)}.", field=name, code=INVALID
        )
    if "\0" in value or (pattern and not re.fullmatch(pattern, value)):
        raise Invalid(f"{name} must be {rule or 'text'}, not {value!r}.", field=name, code=INVALID)
    return value


def number(query: Query, name: str, default: int, low: int, high: int, code: str = BAD_QUERY) -> int:
    given = query.get(name, "").strip()
    if not given:
        return default
    if not re.fullmatch(r"\d{1,18}", given, re.ASCII) or not low <= int(given) <= high:
        raise Invalid(
            f"{name} must be a whole number from {low} to {high}, not {given!r}.", field=name, code=code
        )
    return int(given)


def choice(query: Query, name: str, default: str, allowed: tuple[str, ...], code: str = BAD_QUERY) -> str:
    given = query.get(name, "") or default
    if given not in allowed:
        options = " or ".join(option for option in allowed if option)
        raise Invalid(f"{name} must be {options}, not {given!r}.", field=name, code=code)
    return given


def sorting(query: Query, default: str, allowed: tuple[str, ...]) -> tuple[str, str]:
    """sort_by and order."""
    by = choice(query, "sort_by", default, allowed, UNSUPPORTED_SORT)
    return by, choice(query, "order", "desc", ("asc", "desc"))


def query_text(query: Query, name: str, default: str = "") -> str:
    return text(name, query.get(name, "") or default, 256)


@lru_cache(maxsize=64)
def _decoder(kind: type[Document]) -> "msgspec.json.Decoder[Document]":
    return msgspec.json.Decoder(kind)
