"""The parameters of GET and form requests: `Name=a&Args.0=x&Args.1=y`."""

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl

from turnout.dialects.tia import wire
from turnout.errors import Invalid

MAX_PARAMETERS = 20_000
MAX_INDEX = 16_383

_INDEXED = re.compile(r"(\w+)\.([0-9]{1,9})", re.ASCII)


def pairs(text: bytes) -> list[tuple[str, str]]:
    """Decoded, in the order of the request, blank values kept; bytes that are not UTF-8 become surrogates."""
    try:
        return parse_qsl(
            text.decode("latin-1"),
            keep_blank_values=True,
            encoding="utf-8",
            errors="surrogateescape",
            max_num_fields=MAX_PARAMETERS,
        )
    except ValueError:
        raise Invalid(f"A request has at most {MAX_PARAMETERS} parameters.") from None


def document(parameters: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The parameters of the action, arrays as lists. A missing index is an empty string: the Go SDK omits those."""
    fields: dict[str, Any] = {}
    arrays: dict[str, dict[int, str]] = {}
    for name, value in parameters:
        if name in wire.COMMON:
            continue
        _check_text(name, value)
        match = _INDEXED.fullmatch(name)
        if match is None:
            _put(fields, name, value, name)
        else:
            _put(arrays.setdefault(match[1], {}), int(match[2]), value, name)
    total = 0
    for name, items in arrays.items():
        last = max(items)
        if last > MAX_INDEX:
            raise Invalid(f"{name}.{last}: indices go from 0 to {MAX_INDEX}.", field=f"{name}.{last}")
        total += last + 1
        if total > MAX_PARAMETERS:
            raise Invalid(
                f"All arrays of a request together have at most {MAX_PARAMETERS} items.", field=name
            )
        _put(fields, name, [items.get(index, "") for index in range(last + 1)], name)
    return fields


def _check_text(name: str, value: str) -> None:
    try:
        (name + value).encode()
    except UnicodeEncodeError:
        readable = name.encode("utf-8", "replace").decode()
        raise Invalid(f"{readable} is not UTF-8.", field=readable) from None


def _put(fields: dict[Any, Any], key: object, value: object, name: str) -> None:
    if key in fields:
        raise Invalid(f"{name} is given more than once.", field=name)
    fields[key] = value
