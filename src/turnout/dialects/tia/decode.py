"""Decodes the parameters of a request to a struct of `wire`, with TI-A's errors."""

import difflib
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from turnout.dialects.tia import form_parameters
from turnout.dialects.tia.errors import missing, unknown
from turnout.errors import Invalid

Request = TypeVar("Request", bound=msgspec.Struct)

_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
_WRONG = re.compile(r"(.*) - at `\$\.(\w+).*`", re.DOTALL)

_MAX_QUOTED = 100
"""Characters of an unknown name that an error message quotes."""


def json_decoder(kind: type[Request]) -> Callable[[bytes], Request]:
    """For the body of a v3 POST; an empty body has no parameters."""
    decode = msgspec.json.Decoder(kind).decode

    def read(body: bytes) -> Request:
        try:
            return decode(body or b"{}")
        except msgspec.ValidationError as error:
            raise explain(error, kind) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Invalid(f"The body is not JSON: {error}") from None

    return read


def from_pairs(pairs: Iterable[tuple[str, str]], kind: type[Request]) -> Request:
    """For a query string or form, in which numbers and booleans are text."""
    document = form_parameters.document(pairs)
    try:
        return msgspec.convert(document, kind, strict=False)
    except msgspec.ValidationError as error:
        raise explain(error, kind) from None


def explain(error: msgspec.ValidationError, kind: type[msgspec.Struct]) -> Invalid:
    text = str(error)
    if match := _UNKNOWN.fullmatch(text):
        name = match[1][:_MAX_QUOTED]
        close = difflib.get_close_matches(name, _names(kind), 1, cutoff=0.5)
        return unknown(name, f"; did you mean {close[0]}?" if close else "")
    if match := _MISSING.fullmatch(text):
        return missing(match[1])
    if match := _WRONG.fullmatch(text):
        wrong = match[1].replace("Expected ", "expected ").replace(" | null", "")
        return Invalid(f"{match[2]}: {wrong}.", field=match[2])
    return Invalid("The body must be one JSON object with the action's parameters.")


def _names(kind: type[Any]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(kind)]
