"""Cursors of lists: where a page ended, signed, so that a cursor works only for the list that it came from."""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

import msgspec

from turnout.errors import Invalid

_MAC = 16


class Position(NamedTuple):
    """The last job of a page: the value by which the list is ordered, and its id."""

    value: int | str | None
    job_id: int


def make_cursor(secret: str, listing: tuple[str, ...], position: Position) -> str:
    """`listing`: what the next request must repeat, such as the filter."""
    body = msgspec.json.encode(position)
    return urlsafe_b64encode(_mac(secret, listing, body) + body).rstrip(b"=").decode()


def read_cursor(secret: str, listing: tuple[str, ...], cursor: str) -> Position:
    """Raises Invalid."""
    try:
        raw = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except ValueError:
        raw = b""
    body = raw[_MAC:]
    if not hmac.compare_digest(raw[:_MAC], _mac(secret, listing, body)):
        raise Invalid(
            "cursor: must be exactly the `next` of the previous page, with the same filter and order",
            field="cursor",
        )
    return msgspec.json.decode(body, type=Position)


def _mac(secret: str, listing: tuple[str, ...], body: bytes) -> bytes:
    derived = hmac.digest(secret.encode(), b"turnout-cursors", "sha256")
    return hmac.new(derived, ascii(listing).encode() + b"\0" + body, hashlib.sha256).digest()[:_MAC]
