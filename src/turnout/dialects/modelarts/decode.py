"""A request's body as one of `wire`'s structs, or what is wrong with it in ModelArts' own terms."""

import re
from typing import Any, TypeVar

import msgspec

from turnout.dialects.modelarts import wire, wire_spec
from turnout.errors import Invalid

BAD_JSON = "ModelArts.2787"
BAD_PARAM = "ModelArts.2788"
MAX_DESCRIPTION = 256
MAX_DEPTH = 20
MAX_DOCUMENT = 1 << 20
"""Bytes. More takes so long to look at that others would have to wait for it."""
MAX_KEPT = 4 * MAX_DOCUMENT

Document = TypeVar("Document", bound=msgspec.Struct)

_MISSING = re.compile(r"Object missing required field `(.*?)`(?: - at `\$\.?(.*)`)?", re.DOTALL)
_WRONG = re.compile(r"(.*?) - at `\$\.?(.*)`", re.DOTALL)
_EXPECTED = re.compile(r"Expected `(.*)`, got `(.*)`")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
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
_update = msgspec.json.Decoder(wire_spec.Update)


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


def decode_update(body: bytes) -> wire_spec.Update:
    document = read(_update, body)
    check_description(document.description, "description")
    return document


def read(decoder: "msgspec.json.Decoder[Document]", body: bytes) -> Document:
    """Raises Invalid with 2787 if it is no JSON, with 2788 if a field is missing or of the wrong kind."""
    if len(body) > MAX_DOCUMENT:
        raise Invalid(f"The body has {len(body)} bytes; it may have {MAX_DOCUMENT}.", code=BAD_PARAM)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise explain(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(
            f"The body is not JSON: {str(error) or 'it is nested too deeply'}.", code=BAD_JSON
        ) from None


def convert(data: Any, kind: type[Document]) -> Document:
    """The same for what is JSON already."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise explain(str(error)) from None


def explain(text: str) -> Invalid:
    if match := _MISSING.fullmatch(text):
        field = f"{_spelt(match[2])}.{match[1]}" if match[2] else match[1]
        return Invalid(f"{field} is missing.", field=field, code=BAD_PARAM)
    if match := _WRONG.fullmatch(text):
        field = _spelt(match[2])
        return Invalid(f"{field}: {_plainly(match[1])}.", field=field, code=BAD_PARAM)
    return Invalid(f"The body must be a JSON object: {_plainly(text)}.", code=BAD_PARAM)


def check_name(name: str, field: str) -> None:
    if not _NAME.fullmatch(name):
        raise Invalid(
            f"{field}: {name[:80]!r} must have 1 to 64 characters: letters, digits, `_` and `-`.",
            field=field,
            code=BAD_PARAM,
        )


def check_description(text: str | None, field: str) -> None:
    if text and len(text) > MAX_DESCRIPTION:
        raise Invalid(
            f"{field} must have at most {MAX_DESCRIPTION} characters, not {len(text)}.",
            field=field,
            code=BAD_PARAM,
        )


def check_kept(kept: bytes, field: str) -> bytes:
    """What is added to little by little has an end too."""
    if len(kept) > MAX_KEPT:
        raise Invalid(f"{field} is more than can be kept: {MAX_KEPT} bytes.", field=field, code=BAD_PARAM)
    return kept


def _check_free_parts(document: wire.Job) -> None:
    """What has no shape of its own must not be so deep that it cannot be written down again."""
    spec = document.spec or wire_spec.Spec()
    schedule = spec.schedule_policy or wire_spec.SchedulePolicy()
    for field, part in (
        ("ftjob_config", document.ftjob_config),
        ("spec.asset_model", spec.asset_model),
        ("spec.schedule_policy.required_affinity", schedule.required_affinity),
        ("spec.schedule_policy.preferred_affinity", schedule.preferred_affinity),
    ):
        if not _is_shallow(part, MAX_DEPTH):
            raise Invalid(f"{field} is nested more than {MAX_DEPTH} deep.", field=field, code=BAD_PARAM)


def _is_shallow(part: Any, depth: int) -> bool:
    if not isinstance(part, dict | list):
        return True
    inside: list[Any] = list(part.values()) if isinstance(part, dict) else part  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return depth > 0 and all(_is_shallow(one, depth - 1) for one in inside)


def _spelt(place: str) -> str:
    """msgspec's `algorithm.parameters[...].name`: it does not tell which one of a list."""
    return place.replace("[...]", "[]")


def _plainly(text: str) -> str:
    match = _EXPECTED.fullmatch(text)
    if match is None:
        return text
    wanted = [_KINDS.get(kind, kind) for kind in match[1].split(" | ") if kind != "null"]
    return f"expected {' or '.join(wanted)}, not {_KINDS.get(match[2], match[2])}"
