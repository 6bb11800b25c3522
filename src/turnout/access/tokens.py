"""Bearer tokens: `tk1.<key id>.<expiry>.<mac>`, made by whoever holds the secret, without asking anyone.

They live for an hour at the most, so one that leaks is soon worth nothing.
"""

import base64
import binascii
import hashlib
import hmac

from turnout.access.keys import Key, Keys
from turnout.errors import Unauthenticated

LONGEST_LIFE = 3600
_SKEW = 300


def make_token(key: Key, now: float, seconds: int = LONGEST_LIFE) -> str:
    expiry = int(now) + min(seconds, LONGEST_LIFE)
    return f"tk1.{spell(key.id)}.{expiry}.{_mac(key.secret, key.id, expiry)}"


def check_token(keys: Keys, token: str, now: float) -> Key:
    version, _, rest = token.partition(".")
    spelt, expiry, mac = [*rest.split("."), "", ""][:3]
    if version != "tk1" or not expiry.isdecimal() or len(expiry) > 12:
        raise Unauthenticated("the bearer token is not one of this service's: it begins with tk1.")
    key = keys.find(unspell(spelt))
    # The mac is computed for unknown keys too, so that the time it takes tells nothing.
    expected = _mac(key.secret if key else "", key.id if key else "", int(expiry))
    if not hmac.compare_digest(mac.encode(), expected.encode()) or key is None:
        raise Unauthenticated("no such key, or a wrong secret")
    if not now - _SKEW <= int(expiry) <= now + LONGEST_LIFE + _SKEW or int(expiry) < now:
        raise Unauthenticated("the bearer token has expired, or this machine's clock is off: make a new one")
    return key


def spell(text: str) -> str:
    """In letters that a header and a token's dots leave alone."""
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def unspell(text: str) -> str:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, ValueError):
        return ""


def _mac(secret: str, key_id: str, expiry: int) -> str:
    return hmac.new(secret.encode(), f"turnout-token:{key_id}:{expiry}".encode(), hashlib.sha256).hexdigest()
