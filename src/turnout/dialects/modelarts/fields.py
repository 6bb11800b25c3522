"""Reads what came with a request: its body as a struct, its query as checked values."""

import re
from functools import lru_cache
from typing import TypeVar

import msgspec
from starlette.requests import Request

from turnout.dialects.modelarts import decode
from turnout.dialects.modelarts.errors import BAD_QUERY, INVALID, UNSUPPORTED_SORT
from turnout.errors import Invalid

Document = TypeVar("Document", bound=msgspec.Struct)

DEFAULT_WORKSPACE = "0"


async def read(request: Request, kind: type[Document]) -> Document:
    """Raises Invalid that names the field as the caller spelt it."""
    return decode.read(_decoder(kind), await request.body())


def text(name: str, value: str | None, longest: int, pattern: str = "", rule: str = "") -> str:
    """A text field within its limits; None counts as empty."""
    value = value or ""
    if len(value) > longest:
        raise Invalid(f"{name} may have {longest} characters, not {len(value)}.", field=name, code=INVALID)
    if "\0" in value or (pattern and not re.fullmatch(pattern, value)):
        raise Invalid(f"{name} must be {rule or 'text'}, not {value!r}.", field=name, code=INVALID)
    return value


def number(request: Request, name: str, default: int, low: int, high: int) -> int:
    given = request.query_params.get(name, "")
    if not given:
        return default
    if not re.fullmatch(r"\d{1,10}", given, re.ASCII) or not low <= int(given) <= high:
        raise Invalid(
            f"{name} must be a whole number from {low} to {high}, not {given!r}.", field=name, code=BAD_QUERY
        )
    return int(given)


def word(request: Request, name: str, default: str, allowed: tuple[str, ...], code: str = BAD_QUERY) -> str:
    given = request.query_params.get(name, "") or default
    if given not in allowed:
        raise Invalid(f"{name} must be {' or '.join(allowed)}, not {given!r}.", field=name, code=code)
    return given


def sorting(request: Request, default: str, allowed: tuple[str, ...]) -> tuple[str, str]:
    """sort_by and order."""
    by = word(request, "sort_by", default, allowed, UNSUPPORTED_SORT)
    return by, word(request, "order", "desc", ("asc", "desc"))


def query_text(request: Request, name: str, default: str = "") -> str:
    return text(name, request.query_params.get(name, "") or default, 256)


@lru_cache(maxsize=64)
def _decoder(kind: type[Document]) -> "msgspec.json.Decoder[Document]":
    return msgspec.json.Decoder(kind)
