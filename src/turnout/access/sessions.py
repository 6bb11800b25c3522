"""Session tokens: `ts1.<key id>.<project>.<expiry>.<mac>`, given by the service to who has shown a secret.

They name the project that their holder acts in, live up to a day, and end with their key. The mac's key is derived
from the secret, so that a token of another kind can never pass for one.
"""

import hashlib
import hmac

from turnout.access.keys import Key, Keys, may_use
from turnout.access.tokens import spell, unspell
from turnout.errors import Unauthenticated

LONGEST_SESSION = 86_400
_SKEW = 300


def make_session_token(key: Key, project: str, now: float, seconds: int = LONGEST_SESSION) -> str:
    """Raises Denied if the key may not use the project."""
    may_use(key, project)
    expiry = int(now) + max(0, min(seconds, LONGEST_SESSION))
    return f"ts1.{spell(key.id)}.{spell(project)}.{expiry}.{_mac(key.secret, key.id, project, expiry)}"


def check_session_token(keys: Keys, token: str, now: float) -> tuple[Key, str]:
    """The key that the token was made for, and the project."""
    parts = token.split(".")
    if not token.isascii() or len(parts) != 5 or parts[0] != "ts1" or not _is_expiry(parts[3]):
        raise Unauthenticated("the token is not one that this service gave: ask for a new one")
    key, project, expiry = keys.find(unspell(parts[1])), unspell(parts[2]), int(parts[3])
    # The mac is computed for unknown keys too, so that the time it takes tells nothing.
    expected = _mac(key.secret if key else "", key.id if key else "", project, expiry)
    if not hmac.compare_digest(parts[4].encode(), expected.encode()) or key is None:
        raise Unauthenticated("the token is not valid, or its key was revoked: ask for a new one")
    if not now < expiry <= now + LONGEST_SESSION + _SKEW:
        raise Unauthenticated("the token has expired: ask for a new one")
    may_use(key, project)
    return key, project


def _is_expiry(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 12


def _mac(secret: str, key_id: str, project: str, expiry: int) -> str:
    derived = hmac.digest(secret.encode(), b"turnout-session", "sha256")
    return hmac.new(
        derived, f"{spell(key_id)}.{spell(project)}.{expiry}".encode(), hashlib.sha256
    ).hexdigest()
