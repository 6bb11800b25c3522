"""Session tokens: `ts1.<key id>.<project>.<expiry>.<mac>`. The service issues them to clients that prove a secret.

A session token is limited to one project, is valid for up to a day, and ends with its key. The key of the mac is
derived from the secret, so a token of another kind is never accepted as a session token.
"""

import hashlib
import hmac

from turnout.access.keys import Key, Keys, may_use
from turnout.access.tokens import decode_part, encode_part, is_expiry
from turnout.errors import Expired, Unauthenticated

LONGEST_SESSION = 86_400
_SKEW = 300


def make_session_token(key: Key, project: str, now: float, seconds: int = LONGEST_SESSION) -> str:
    """Raises Denied if the key may not use the project."""
    may_use(key, project)
    expiry = int(now) + max(0, min(seconds, LONGEST_SESSION))
    return _encoded(key.secret, key.id, project, expiry)


def check_session_token(keys: Keys, token: str, now: float) -> tuple[Key, str]:
    """The key that the token was made for, and the project."""
    parts = token.split(".")
    if not token.isascii() or len(parts) != 5 or parts[0] != "ts1" or not is_expiry(parts[3]):
        raise Unauthenticated("the token was not issued by this service: ask for a new one")
    key, project, expiry = keys.find(decode_part(parts[1])), decode_part(parts[2]), int(parts[3])
    # The mac is computed for unknown keys too, so that the response time reveals nothing.
    expected = _encoded(key.secret if key else "", key.id if key else "", project, expiry)
    if not hmac.compare_digest(token.encode(), expected.encode()) or key is None:
        raise Unauthenticated("the token is not valid, or its key was revoked: ask for a new one")
    if not now < expiry <= now + LONGEST_SESSION + _SKEW:
        raise Expired("the token has expired: ask for a new one")
    may_use(key, project)
    return key, project


def _encoded(secret: str, key_id: str, project: str, expiry: int) -> str:
    return (
        f"ts1.{encode_part(key_id)}.{encode_part(project)}.{expiry}.{_mac(secret, key_id, project, expiry)}"
    )


def _mac(secret: str, key_id: str, project: str, expiry: int) -> str:
    derived = hmac.digest(secret.encode(), b"turnout-session", "sha256")
    return hmac.new(
        derived, f"{encode_part(key_id)}.{encode_part(project)}.{expiry}".encode(), hashlib.sha256
    ).hexdigest()
