"""Bearer tokens: `tk1.<key id>.<expiry>.<mac>`. The holder of a secret makes them without a request.

They are valid for at most an hour, which limits the damage of a leaked token.
"""

import base64
import binascii
import hashlib
import hmac

from turnout.access.keys import Key, Keys
from turnout.errors import Expired, Unauthenticated

LONGEST_LIFE = 3600
_SKEW = 300


def make_token(key: Key, now: float, seconds: int = LONGEST_LIFE) -> str:
    expiry = int(now) + min(seconds, LONGEST_LIFE)
    return _encoded(key.secret, key.id, expiry)


def check_token(keys: Keys, token: str, now: float) -> Key:
    """Raises Unauthenticated, also for a token in a different encoding of the same content."""
    parts = token.split(".")
    if len(parts) != 4 or parts[0] != "tk1" or not is_expiry(parts[2]):
        raise Unauthenticated(
            "the bearer token must have the form tk1.<key>.<expiry>.<mac>; `turnout token` makes one"
        )
    key, expiry = keys.find(decode_part(parts[1])), int(parts[2])
    # The mac is computed for unknown keys too, so that the response time reveals nothing.
    expected = _encoded(key.secret if key else "", key.id if key else "", expiry)
    if not hmac.compare_digest(token.encode("utf-8", "replace"), expected.encode()) or key is None:
        raise Unauthenticated("no such key, or a wrong secret")
    if expiry < now:
        raise Expired("the bearer token has expired, or this machine's clock is wrong: make a new one")
    if expiry > now + LONGEST_LIFE + _SKEW:
        raise Unauthenticated("the bearer token is valid for too long, or a clock is wrong: make a new one")
    return key


def is_expiry(text: str) -> bool:
    """Whether the text is a number of seconds since 1970."""
    return text.isascii() and text.isdecimal() and len(text) <= 12


def encode_part(text: str) -> str:
    """The text in base64, which is safe in a header and has no dots."""
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def decode_part(text: str) -> str:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, ValueError):
        return ""


def _encoded(secret: str, key_id: str, expiry: int) -> str:
    return f"tk1.{encode_part(key_id)}.{expiry}.{_mac(secret, key_id, expiry)}"


def _mac(secret: str, key_id: str, expiry: int) -> str:
    return hmac.new(secret.encode(), f"turnout-token:{key_id}:{expiry}".encode(), hashlib.sha256).hexdigest()
