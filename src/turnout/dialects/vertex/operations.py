"""Long-running operations. All are already done when the call that makes them returns.

The operation of a delete is not stored: its number contains its time and a MAC, so it can be shown again at any time
and cannot be forged. Operations that have a response are stored as assets.
"""

import hashlib
import hmac
from typing import Any

import msgspec
from starlette.responses import Response

from turnout.dialects import Context
from turnout.dialects.vertex import reply, resource_ids
from turnout.dialects.vertex.call import Call
from turnout.dialects.vertex.protobuf.times import spell_time
from turnout.errors import NotFound
from turnout.job import Asset

KIND = "vertex-operation"
_MILLISECOND = 1_000_000
_MAC_BITS = 21
_BETA = 1


def delete_operation(context: Context, call: Call) -> dict[str, Any]:
    """The operation of a delete that has just finished."""
    at = context.clock() // _MILLISECOND
    beta = call.version == "v1beta1"
    number = (at << _MAC_BITS | _mac(context, call.parent, at)) << 1 | beta
    return _document(call.parent, number)


async def finished(
    context: Context,
    call: Call,
    name: str,
    response: dict[str, Any],
    *,
    metadata: str = "",
    more: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Stores an operation that is done. `name` is the message of its response; `more` are fields of its metadata."""
    at = resource_ids.now(context)
    number = resource_ids.new_id(context)
    package = (
        f"type.googleapis.com/google.cloud.aiplatform.{'v1beta1' if call.version == 'v1beta1' else 'v1'}"
    )
    times = {"createTime": spell_time(at), "updateTime": spell_time(at)}
    document = {
        "name": f"{call.parent}/operations/{number}",
        "metadata": {"@type": f"{package}.{metadata}", "genericMetadata": times} | (more or {}),
        "done": True,
        "response": {"@type": f"{package}.{name}"} | response,
    }
    asset_id = f"{call.location}/{number}"
    await context.assets.create(
        call.caller,
        Asset(
            call.caller.project,
            KIND,
            asset_id,
            call.location,
            asset_id,
            at,
            at,
            msgspec.json.encode(document),
        ),
    )
    return document


async def get(context: Context, call: Call) -> Response:
    """Serves `:wait` too, because every operation is done."""
    return reply.json(await _find(context, call))


async def list_operations(context: Context, call: Call) -> Response:
    """Always empty: no operation is running."""
    return reply.empty()


async def acknowledge(context: Context, call: Call) -> Response:
    """For cancel and delete, which have no effect on an operation that is done."""
    await _find(context, call)
    return reply.empty()


async def _find(context: Context, call: Call) -> dict[str, Any]:
    """The operation that the address names. Raises NotFound."""
    number = _number(context, call)
    if number is not None:
        return _document(call.parent, number)
    try:
        asset = await context.assets.get(call.caller, KIND, f"{call.location}/{call.resource[-1][:100]}")
    except NotFound:
        name = f"{call.parent}/{'/'.join(call.resource)[:200]}"
        raise NotFound(f"The Operation {name} does not exist.") from None
    return msgspec.json.decode(asset.document)


def _number(context: Context, call: Call) -> int | None:
    """The number at the end of the address, if it is that of a delete."""
    text = call.resource[-1]
    if text.isascii() and text.isdecimal() and len(text) <= 19:
        number = int(text)
        at, mac = number >> (_MAC_BITS + 1), number >> 1 & ((1 << _MAC_BITS) - 1)
        if mac == _mac(context, call.parent, at):
            return number
    return None


def _document(parent: str, number: int) -> dict[str, Any]:
    at = spell_time((number >> (_MAC_BITS + 1)) * _MILLISECOND)
    # A client of one version cannot decode a response with messages of the other.
    version = "v1beta1" if number & _BETA else "v1"
    return {
        "name": f"{parent}/operations/{number}",
        "metadata": {
            "@type": f"type.googleapis.com/google.cloud.aiplatform.{version}.DeleteOperationMetadata",
            "genericMetadata": {"createTime": at, "updateTime": at},
        },
        "done": True,
        "response": {"@type": "type.googleapis.com/google.protobuf.Empty"},
    }


def _mac(context: Context, parent: str, at: int) -> int:
    derived = hmac.digest(context.keys.root.secret.encode(), b"turnout-operations", "sha256")
    digest = hmac.new(derived, f"{parent}/{at}".encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:8]) >> (64 - _MAC_BITS)
