"""Pages of a list. A token names the last job of a page, so new and deleted jobs do not shift the next page."""

import base64
import binascii
import hashlib
import hmac
from typing import NamedTuple

from turnout.errors import Invalid

DEFAULT_SIZE = 100
MAX_SIZE = 1000
_MAC = 16


class Listing(NamedTuple):
    """The list that a token is valid for."""

    project: str
    location: str
    filter: str = ""


def page_size(text: str) -> int:
    """From `pageSize` in the query, at most MAX_SIZE."""
    if not text:
        return DEFAULT_SIZE
    if not (text.isascii() and text.isdecimal()) or len(text) > 10:
        raise Invalid(f"pageSize: {text[:100]!r} must be a whole number of at least 0.", field="pageSize")
    return min(int(text), MAX_SIZE) or DEFAULT_SIZE


def make_token(secret: bytes, listing: Listing, last_id: int) -> str:
    body = last_id.to_bytes(8)
    return base64.urlsafe_b64encode(body + _mac(secret, listing, body)).rstrip(b"=").decode()


def read_token(secret: bytes, listing: Listing, token: str) -> int | None:
    """The id of the last job of the previous page; None for the first page."""
    if not token:
        return None
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    body, mac = raw[:8], raw[8:]
    valid = len(body) == 8 and hmac.compare_digest(mac, _mac(secret, listing, body))
    if not valid or make_token(secret, listing, int.from_bytes(body)) != token:
        raise Invalid(
            "pageToken must be exactly the nextPageToken of the previous response, with the same parent and filter.",
            field="pageToken",
        )
    return int.from_bytes(body)


def _mac(secret: bytes, listing: Listing, body: bytes) -> bytes:
    # Each part with its length, so that different listings never have the same text.
    parts = b"".join(len(part.encode()).to_bytes(8) + part.encode() for part in listing)
    return hmac.new(secret, b"turnout-page:" + body + parts, hashlib.sha256).digest()[:_MAC]
