"""Long-running operations. Only deletes make one, and each is done when it is answered.

Nothing is kept of them: an operation's number says when it was and carries a mac, so that it can be shown again for
ever and none can be made up.
"""

import hashlib
import hmac
from typing import Any

from starlette.responses import Response

from turnout.dialects.vertex import reply
from turnout.dialects.vertex.house import Call, House
from turnout.dialects.vertex.times import spell_time
from turnout.errors import NotFound

_MILLISECOND = 1_000_000
_MAC_BITS = 21
_BETA = 1


def deleted(house: House, call: Call) -> dict[str, Any]:
    """The operation of a delete that has just been done."""
    at = house.clock() // _MILLISECOND
    beta = call.version == "v1beta1"
    number = (at << _MAC_BITS | _mac(house, call.parent, at)) << 1 | beta
    return _document(call.parent, number)


async def get(house: House, call: Call) -> Response:
    """Also for `:wait`: there is never anything to wait for."""
    return reply.json(_document(call.parent, _find(house, call)))


async def list_operations(house: House, call: Call) -> Response:
    """None is under way."""
    return reply.empty()


async def forget(house: House, call: Call) -> Response:
    """For cancel, which comes too late, and delete."""
    _find(house, call)
    return reply.empty()


def _find(house: House, call: Call) -> int:
    """The number that the address has at its end. Raises NotFound."""
    text = call.resource[-1]
    if text.isascii() and text.isdecimal() and len(text) <= 19:
        number = int(text)
        at, mac = number >> (_MAC_BITS + 1), number >> 1 & ((1 << _MAC_BITS) - 1)
        if mac == _mac(house, call.parent, at):
            return number
    raise NotFound(f"The Operation {call.parent}/{'/'.join(call.resource)[:200]} does not exist.")


def _document(parent: str, number: int) -> dict[str, Any]:
    at = spell_time((number >> (_MAC_BITS + 1)) * _MILLISECOND)
    # A client of one version may not know the other's messages, and takes no answer with one that it does not know.
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


def _mac(house: House, parent: str, at: int) -> int:
    derived = hmac.digest(house.keys.root.secret.encode(), b"turnout-operations", "sha256")
    digest = hmac.new(derived, f"{parent}/{at}".encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:8]) >> (64 - _MAC_BITS)
