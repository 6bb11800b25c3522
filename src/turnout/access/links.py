"""Links that work without a key for a few minutes: whoever was allowed to ask for one may hand it to a browser.

The signature is bound to what the link is about, and made with a key that is derived from the root key, never by that
key itself.
"""

import hashlib
import hmac
from typing import NamedTuple

from turnout.access.keys import Key
from turnout.errors import Denied

LOG_SECONDS = 300


class Link(NamedTuple):
    expires: int
    """Seconds since 1970."""
    signature: str


def make_link(root: Key, about: tuple[str, ...], now: float, seconds: int = LOG_SECONDS) -> Link:
    """`about` names the one thing that the link leads to: its kind, project, job and replica."""
    expires = int(now) + seconds
    return Link(expires, _sign(root, about, expires))


def check_link(root: Key, about: tuple[str, ...], expires: str, signature: str, now: float) -> None:
    """Raises Denied."""
    if not expires.isascii() or not expires.isdecimal() or len(expires) > 12:
        raise Denied("the link is not one of this service's: ask for a new one")
    expected = _sign(root, about, int(expires))
    if not hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace")):
        raise Denied(
            "the link is not one of this service's, or it leads to something else: ask for a new one"
        )
    if now > int(expires):
        raise Denied("the link has expired: ask for a new one")


def _sign(root: Key, about: tuple[str, ...], expires: int) -> str:
    derived = hmac.digest(root.secret.encode(), b"turnout-links", "sha256")
    return hmac.new(derived, ascii((*about, expires)).encode(), hashlib.sha256).hexdigest()
