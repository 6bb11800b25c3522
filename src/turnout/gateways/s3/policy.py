"""The policy of an upload form, which limits the values of its fields. Pure."""

import base64
import binascii
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from turnout.access.sigv4 import LONGEST_LIFE, SKEW
from turnout.gateways.s3.errors import S3Error

_NOT_IN_POLICIES = {"awsaccesskeyid", "file", "policy", "signature", "x-amz-signature"}
_IGNORED = "x-ignore-"


class SizeRange(NamedTuple):
    least: int
    most: int


def check(policy: str, fields: dict[str, str], bucket: str, now: float) -> SizeRange | None:
    """`fields`: by their names in lower case. Returns the sizes that the file may have. Raises S3Error."""
    document = _decode(policy)
    _check_expiration(document.get("expiration"), now)
    conditions = document.get("conditions")
    if not isinstance(conditions, list):
        raise _malformed("it needs a list of conditions")
    values = fields | {"bucket": fields.get("bucket", bucket)}
    if values["bucket"] != bucket:
        raise _failed(["eq", "$bucket", bucket])
    named: set[str] = set()
    size: SizeRange | None = None
    for condition in conditions:
        if isinstance(condition, list) and condition and condition[0] == "content-length-range":
            size = _narrower(size, _size_range(condition))
        else:
            named.add(_check_condition(condition, values))
    extra = [
        name for name in fields if name not in named | _NOT_IN_POLICIES and not name.startswith(_IGNORED)
    ]
    if extra:
        raise S3Error("AccessDenied", f"Invalid according to Policy: Extra input fields: {extra[0][:100]}")
    return size


def _decode(policy: str) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(base64.b64decode(policy, validate=True))
    except (binascii.Error, ValueError, msgspec.DecodeError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise _malformed("it must be a JSON object in base64")
    return document


def _check_expiration(text: object, now: float) -> None:
    try:
        end = datetime.fromisoformat(text if isinstance(text, str) else "")
        seconds = (end if end.tzinfo else end.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise _malformed("it needs an expiration such as 2030-01-02T03:04:05Z") from None
    if now > seconds:
        raise S3Error("AccessDenied", "Invalid according to Policy: Policy expired.")
    if seconds > now + LONGEST_LIFE + SKEW:
        raise _malformed(f"its expiration must be within {LONGEST_LIFE} seconds from now")


def _check_condition(condition: object, values: dict[str, str]) -> str:
    """The name of the field that the condition is about."""
    match condition:
        case dict() if len(condition) == 1:
            ((name, wanted),) = condition.items()
            operator = "eq"
        case [str(operator), str(name), wanted] if name.startswith("$"):
            name, operator = name[1:], operator.lower()
        case _:
            raise _malformed(f"the condition {str(condition)[:100]} is not supported")
    if operator not in ("eq", "starts-with") or not isinstance(wanted, str):
        raise _malformed(f"the condition {str(condition)[:100]} is not supported")
    name = name.lower()
    value = values.get(name, "")
    if not (value == wanted if operator == "eq" else value.startswith(wanted)):
        raise _failed([operator, f"${name}", wanted])
    return name


def _size_range(condition: list[Any]) -> SizeRange:
    try:
        _, least, most = condition
        return SizeRange(int(least), int(most))
    except (TypeError, ValueError, OverflowError):
        raise _malformed('content-length-range must be ["content-length-range", <least>, <most>]') from None


def _narrower(first: SizeRange | None, second: SizeRange) -> SizeRange:
    return (
        second if first is None else SizeRange(max(first.least, second.least), min(first.most, second.most))
    )


def _malformed(why: str) -> S3Error:
    return S3Error("InvalidPolicyDocument", f"Invalid Policy: {why}.")


def _failed(condition: list[str]) -> S3Error:
    text = msgspec.json.encode(condition).decode()
    return S3Error("AccessDenied", f"Invalid according to Policy: Policy Condition failed: {text[:200]}")
