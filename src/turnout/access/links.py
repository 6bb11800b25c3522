"""Signed links, which work without a key for a few minutes, for example in a browser.

The signature covers the target of the link. Its key is derived from the root key; the root key itself never signs.
"""

import hashlib
import hmac
from typing import NamedTuple

from turnout.access.keys import Key
from turnout.access.tokens import is_expiry
from turnout.errors import Denied

LOG_SECONDS = 300


class SignedLink(NamedTuple):
    expires: int
    """Seconds since 1970."""
    signature: str


def make_link(root: Key, target: tuple[str, ...], now: float, seconds: int = LOG_SECONDS) -> SignedLink:
    """`target`: its kind, project, job and replica."""
    expires = int(now) + seconds
    return SignedLink(expires, _sign(root, target, expires))


def check_link(root: Key, target: tuple[str, ...], expires: str, signature: str, now: float) -> None:
    """Raises Denied."""
    if not is_expiry(expires) or expires != str(int(expires)):
        raise Denied("the link was not issued by this service: ask for a new one")
    expected = _sign(root, target, int(expires))
    if not hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace")):
        raise Denied("the link was not issued by this service, or is for something else: ask for a new one")
    if now > int(expires):
        raise Denied("the link has expired: ask for a new one")


def _sign(root: Key, target: tuple[str, ...], expires: int) -> str:
    derived = hmac.digest(root.secret.encode(), b"turnout-links", "sha256")
    return hmac.new(derived, ascii((*target, expires)).encode(), hashlib.sha256).hexdigest()
