"""Checks values against the schemas of docs/openapi.json: the part of JSON Schema that they use."""

import json
import re
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[3] / "docs" / "openapi.json"
OPENAPI: Any = json.loads(FILE.read_text())
_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_KNOWN = {
    "$ref", "anyOf", "type", "properties", "required", "items", "additionalProperties",
    "title", "description", "default", "enum",
}  # fmt: skip


def check_reply(method: str, path: str, status: int, body: Any) -> None:
    """Raises AssertionError if the file has no such call, or describes another reply."""
    operation = _operation(method, path.partition("?")[0])
    responses = operation["responses"]
    described = responses.get(str(status)) if status < 400 else responses["default"]
    assert described, f"{method} {path} answers {status}, which is not described"
    check(body, described["content"]["application/json"]["schema"], f"{method} {path}")


def check(value: Any, schema: Any, where: str) -> None:
    assert set(schema) <= _KNOWN, f"the schema of {where} has {set(schema) - _KNOWN}"
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/components/schemas/")
        return check(value, OPENAPI["components"]["schemas"][name], where)
    if "anyOf" in schema:
        return _check_any(value, schema["anyOf"], where)
    if "enum" in schema:
        assert value in schema["enum"], f"{where} is {value!r}"
    if "type" in schema:
        kinds = _KINDS[schema["type"]]
        fits = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        assert fits, f"{where} is {value!r}, not {schema['type']}"
    if isinstance(value, dict):
        _check_fields(value, schema, where)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            check(item, schema.get("items", {}), f"{where}[{number}]")
    return None


def _check_fields(value: dict[str, Any], schema: Any, where: str) -> None:
    known = schema.get("properties", {})
    assert set(schema.get("required", ())) <= set(value), f"{where} lacks fields"
    for name, field in value.items():
        rest = schema.get("additionalProperties", {} if not known else None)
        inner = known.get(name, rest)
        assert inner is not None, f"{where}.{name} is not described"
        check(field, inner, f"{where}.{name}")


def _check_any(value: Any, schemas: list[Any], where: str) -> None:
    failures: list[str] = []
    for schema in schemas:
        try:
            return check(value, schema, where)
        except AssertionError as error:
            failures.append(str(error))
    raise AssertionError("; ".join(failures))


def _operation(method: str, path: str) -> Any:
    for template, operations in OPENAPI["paths"].items():
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
        if re.fullmatch(pattern, "/turnout/v1" + path) and method.lower() in operations:
            return operations[method.lower()]
    raise AssertionError(f"docs/openapi.json has no {method} {path}")
