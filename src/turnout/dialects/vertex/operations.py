"""Long-running operations. Only delete returns one, and it is already done.

Operations are not stored: the number of an operation contains its time and a MAC, so it can be shown again at any time
and cannot be forged.
"""

import hashlib
import hmac
from typing import Any

from starlette.responses import Response

from turnout.dialects import Context
from turnout.dialects.vertex import reply
from turnout.dialects.vertex.call import Call
from turnout.dialects.vertex.protobuf.times import spell_time
from turnout.errors import NotFound

_MILLISECOND = 1_000_000
_MAC_BITS = 21
_BETA = 1


def delete_operation(context: Context, call: Call) -> dict[str, Any]:
    """The operation of a delete that has just finished."""
    at = context.clock() // _MILLISECOND
    beta = call.version == "v1beta1"
    number = (at << _MAC_BITS | _mac(context, call.parent, at)) << 1 | beta
    return _document(call.parent, number)


async def get(context: Context, call: Call) -> Response:
    """Also for `:wait`, because every operation is done."""
    return reply.json(_document(call.parent, _find(context, call)))


async def list_operations(context: Context, call: Call) -> Response:
    """Always empty: no operation is running."""
    return reply.empty()


async def acknowledge(context: Context, call: Call) -> Response:
    """For cancel and delete, which have no effect on an operation that is done."""
    _find(context, call)
    return reply.empty()


def _find(context: Context, call: Call) -> int:
    """The number at the end of the address. Raises NotFound."""
    text = call.resource[-1]
    if text.isascii() and text.isdecimal() and len(text) <= 19:
        number = int(text)
        at, mac = number >> (_MAC_BITS + 1), number >> 1 & ((1 << _MAC_BITS) - 1)
        if mac == _mac(context, call.parent, at):
            return number
    raise NotFound(f"The Operation {call.parent}/{'/'.join(call.resource)[:200]} does not exist.")


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
