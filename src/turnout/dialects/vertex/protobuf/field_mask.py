"""Field masks: which fields of a resource a response has."""

from typing import Any

from turnout.dialects.vertex.protobuf import schema
from turnout.dialects.vertex.protobuf.field_path import quoted
from turnout.dialects.vertex.wire import Message
from turnout.errors import Invalid

Mask = dict[str, "Mask"]
"""By JSON name; an empty mask selects the whole field."""

_LONGEST = 10_000


def parse(text: str, kind: type[Message]) -> Mask | None:
    """`name,jobSpec.scheduling`, in either spelling; None: everything. Raises Invalid."""
    if len(text) > _LONGEST:
        raise Invalid(f"readMask is longer than {_LONGEST} characters.", field="readMask")
    paths = [path.strip() for path in text.split(",") if path.strip()]
    if not paths or "*" in paths:
        return None
    mask: Mask = {}
    for path in paths:
        _add(mask, _names(path, kind))
    return mask


def apply(mask: Mask | None, document: dict[str, Any]) -> dict[str, Any]:
    if mask is None:
        return document
    return {
        name: apply(mask[name] or None, value) if isinstance(value, dict) else value
        for name, value in document.items()
        if name in mask
    }


def _names(path: str, kind: type[Message]) -> list[str]:
    names: list[str] = []
    inner: type[Message] | None = kind
    for step in path.split("."):
        field = schema.of(inner).by_name.get(step) if inner else None
        if inner is None:
            raise Invalid(
                f"readMask: {quoted(path)} selects a part of {names[-1]}, which can only be selected as a whole.",
                field="readMask",
            )
        if field is None:
            known = ", ".join(sibling.json for sibling in schema.of(inner).fields)
            raise Invalid(
                f"readMask: {quoted(path)} is not a field; {inner.__name__} has {known}.", field="readMask"
            )
        names.append(field.json)
        inner = None if field.repeated or field.map else field.message
    return names


def _add(mask: Mask, names: list[str]) -> None:
    """A whole field replaces parts of it."""
    for index, name in enumerate(names):
        last = index == len(names) - 1
        if last:
            mask[name] = {}
        elif name in mask and not mask[name]:
            return
        else:
            mask = mask.setdefault(name, {})
