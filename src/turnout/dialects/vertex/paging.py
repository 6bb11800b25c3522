"""Pages of a list. A token says where the last page ended, so that jobs that come or go meanwhile shift nothing."""

import base64
import binascii
import hashlib
import hmac
from typing import NamedTuple

from turnout.errors import Invalid

DEFAULT_SIZE = 100
LARGEST_SIZE = 1000
_MAC = 16


class Listing(NamedTuple):
    """What a token is good for, and for nothing else."""

    project: str
    location: str
    filter: str = ""


def size(text: str) -> int:
    """Of `pageSize` in the query; more than there can be is as many as there can be."""
    if not text:
        return DEFAULT_SIZE
    if not (text.isascii() and text.isdecimal()) or len(text) > 10:
        raise Invalid(f"pageSize: {text[:100]!r} must be a number from 0 on.", field="pageSize")
    return min(int(text), LARGEST_SIZE) or DEFAULT_SIZE


def make(secret: bytes, listing: Listing, last_id: int) -> str:
    body = last_id.to_bytes(8)
    return base64.urlsafe_b64encode(body + _mac(secret, listing, body)).rstrip(b"=").decode()


def read(secret: bytes, listing: Listing, token: str) -> int | None:
    """The id that the last page ended with; None: the first page is wanted."""
    if not token:
        return None
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    body, mac = raw[:8], raw[8:]
    if len(body) != 8 or not hmac.compare_digest(mac, _mac(secret, listing, body)):
        raise Invalid(
            "pageToken must be exactly the nextPageToken of the last answer, with the same parent and filter.",
            field="pageToken",
        )
    return int.from_bytes(body)


def _mac(secret: bytes, listing: Listing, body: bytes) -> bytes:
    # Each part with its length, so that no two listings have the same text.
    parts = b"".join(len(part.encode()).to_bytes(8) + part.encode() for part in listing)
    return hmac.new(secret, b"turnout-page:" + body + parts, hashlib.sha256).digest()[:_MAC]
