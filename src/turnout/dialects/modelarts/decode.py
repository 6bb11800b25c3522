"""Decodes a request's body into a struct of `wire`, and explains with ModelArts' codes what is wrong with it."""

import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from turnout.dialects.modelarts import wire
from turnout.dialects.modelarts.errors import BAD_JSON, INVALID, invalid, quoted
from turnout.errors import Invalid

MAX_DESCRIPTION = 256
MAX_DEPTH = 20
MAX_DOCUMENT = 1 << 20
"""Bytes. Decoding blocks the event loop, so a larger document would delay other requests."""
MAX_STORED = 4 * MAX_DOCUMENT

Document = TypeVar("Document", bound=msgspec.Struct)

_MISSING = re.compile(r"Object missing required field `(.*?)`(?: - at `\$\.?(.*)`)?", re.DOTALL)
_WRONG = re.compile(r"(.*?) - at `\$\.?(.*)`", re.DOTALL)
_EXPECTED = re.compile(r"Expected `(.*)`, got `(.*)`")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAME_RULE = "must have 1 to 64 characters: letters, digits, `_` and `-`"
_KINDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}

_job = msgspec.json.Decoder(wire.Job)
_algorithm = msgspec.json.Decoder(wire.Algorithm)
_update = msgspec.json.Decoder(wire.Update)


def decode_job(body: bytes) -> wire.Job:
    document = read(_job, body)
    check_name(document.metadata.name, "metadata.name")
    check_description(document.metadata.description, "metadata.description")
    _check_free_parts(document)
    return document


def decode_algorithm(body: bytes) -> wire.Algorithm:
    document = read(_algorithm, body)
    check_name(document.metadata.name, "metadata.name")
    check_description(document.metadata.description, "metadata.description")
    return document


def decode_update(body: bytes) -> wire.Update:
    document = read(_update, body)
    check_description(document.description, "description")
    return document


def read(decoder: "msgspec.json.Decoder[Document]", body: bytes) -> Document:
    """Raises Invalid with code 2787 if the body is not JSON, and 2788 if a field is missing or has the wrong type."""
    if len(body) > MAX_DOCUMENT:
        raise Invalid(f"The body has {len(body)} bytes; the limit is {MAX_DOCUMENT}.", code=INVALID)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise explain(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(
            f"The body is not JSON: {str(error) or 'it is nested too deeply'}.", code=BAD_JSON
        ) from None


def explain(text: str) -> Invalid:
    if match := _MISSING.fullmatch(text):
        field = f"{_field_name(match[2])}.{match[1]}" if match[2] else match[1]
        return Invalid(f"{field} is missing.", field=field, code=INVALID)
    if match := _WRONG.fullmatch(text):
        field = _field_name(match[2])
        return Invalid(f"{field}: {_explain_type(match[1])}.", field=field, code=INVALID)
    return Invalid(f"The body must be a JSON object: {_explain_type(text)}.", code=INVALID)


def check_name(name: str, field: str) -> None:
    if not _NAME.fullmatch(name):
        raise invalid(INVALID, field, f": {quoted(name)} {_NAME_RULE}.")


def check_names(names: Sequence[str | None], field: str, noun: str, code: str, duplicate: str) -> None:
    """Checks the names of a list's items.

    `code` is the error code for a missing or malformed name, `duplicate` the one for a name that occurs twice.
    """
    seen: set[str] = set()
    for index, name in enumerate(names):
        item = f"{field}[{index}].name"
        if name is None:
            raise invalid(code, item, " is missing.")
        if not _NAME.fullmatch(name):
            raise invalid(code, item, f": {quoted(name)} {_NAME_RULE}.")
        if name in seen:
            raise invalid(duplicate, item, f": two {noun} have the name {name!r}.")
        seen.add(name)


def check_description(text: str | None, field: str) -> None:
    if text and len(text) > MAX_DESCRIPTION:
        raise Invalid(
            f"{field} must have at most {MAX_DESCRIPTION} characters, not {len(text)}.",
            field=field,
            code=INVALID,
        )


def check_stored_size(stored: bytes, field: str) -> bytes:
    """Limits a document that grows with each update."""
    if len(stored) > MAX_STORED:
        raise Invalid(
            f"{field} makes the job larger than {MAX_STORED} bytes, which is the limit.",
            field=field,
            code=INVALID,
        )
    return stored


def _check_free_parts(document: wire.Job) -> None:
    """Limits the nesting of parts without a schema: the encoder cannot write very deep ones."""
    spec = document.spec or wire.Spec()
    schedule = spec.schedule_policy or wire.SchedulePolicy()
    for field, part in (
        ("ftjob_config", document.ftjob_config),
        ("spec.asset_model", spec.asset_model),
        ("spec.schedule_policy.required_affinity", schedule.required_affinity),
        ("spec.schedule_policy.preferred_affinity", schedule.preferred_affinity),
    ):
        if not _is_shallow(part, MAX_DEPTH):
            raise Invalid(f"{field} is nested more than {MAX_DEPTH} levels deep.", field=field, code=INVALID)


def _is_shallow(part: Any, depth: int) -> bool:
    if not isinstance(part, dict | list):
        return True
    inside: list[Any] = list(part.values()) if isinstance(part, dict) else part  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return depth > 0 and all(_is_shallow(child, depth - 1) for child in inside)


def _field_name(path: str) -> str:
    """msgspec writes `parameters[...].name`: it does not say which item of a list."""
    return path.replace("[...]", "[]")


def _explain_type(text: str) -> str:
    match = _EXPECTED.fullmatch(text)
    if match is None:
        return text
    expected = [_KINDS.get(kind, kind) for kind in match[1].split(" | ") if kind != "null"]
    return f"expected {' or '.join(expected)}, not {_KINDS.get(match[2], match[2])}"
