"""Sessions of the page: a cookie, which no script can read, and a page token, which only the page's script sends.

Browsers send cookies to every port of a host, so another server on the host may see the cookie, but never the token.
Both derive from the secret of the key: a session survives a restart of the service, and ends with its key.
"""

import hashlib
import hmac
import secrets
from typing import NamedTuple

from turnout.access.keys import Key, Keys
from turnout.access.tokens import decode_part, encode_part, is_expiry
from turnout.errors import Denied, Expired, Unauthenticated

COOKIE = "turnout-session"
HEADER = "turnout-page"
"""The header with the page token."""
SESSION_SECONDS = 7 * 86_400
TICKET_SECONDS = 60
_MOST = 10_000


class PageSession(NamedTuple):
    cookie: str
    token: str


class _Ticket(NamedTuple):
    target: str
    key: str
    expires: float


class PageSessions:
    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._ended: dict[str, float] = {}
        """Sessions that were ended by signing out, kept until they would have expired."""
        self._tickets: dict[str, _Ticket] = {}

    def start(self, key_id: str, secret: str, now: float) -> tuple[Key, PageSession]:
        """Raises Unauthenticated."""
        key = self._keys.find(key_id)
        # Compared for unknown keys too, so that the response time reveals nothing.
        right = hmac.compare_digest(_digest(secret), _digest(key.secret if key else ""))
        if key is None or not right:
            raise Unauthenticated("no such key, or a wrong secret")
        body = f"tp1.{encode_part(key.id)}.{secrets.token_urlsafe(16)}.{int(now) + SESSION_SECONDS}"
        cookie = f"{body}.{_mac(key.secret, 'cookie', body)}"
        return key, PageSession(cookie, _mac(key.secret, "token", body))

    def check(self, cookie: str, token: str, now: float) -> Key:
        """Raises Unauthenticated."""
        body, _, mac = cookie.rpartition(".")
        parts = body.split(".")
        if not cookie.isascii() or len(parts) != 4 or parts[0] != "tp1" or not is_expiry(parts[3]):
            raise Unauthenticated("the session was not started by this service: sign in")
        key = self._keys.find(decode_part(parts[1]))
        secret = key.secret if key else ""
        right = hmac.compare_digest(mac, _mac(secret, "cookie", body))
        if not right or key is None or body in self._ended:
            raise Unauthenticated("the session has ended, or its key was revoked: sign in")
        if int(parts[3]) < now:
            raise Expired("the session has expired: sign in")
        expected = _mac(secret, "token", body)
        if not hmac.compare_digest(token.encode("utf-8", "replace"), expected.encode()):
            raise Unauthenticated(f"only a page of this service may use its session (header {HEADER})")
        return key

    def end(self, cookie: str, now: float) -> None:
        """Signs out. The caller has checked the cookie."""
        self._ended = {body: expires for body, expires in self._ended.items() if expires > now}
        self._ended[cookie.rpartition(".")[0]] = now + SESSION_SECONDS

    def ticket(self, key_id: str, target: str, now: float) -> str:
        """Lets the browser itself fetch `target`, a path with its query, once within a minute, for a download."""
        for old in [one for one, ticket in self._tickets.items() if ticket.expires < now][:_MOST]:
            del self._tickets[old]
        if len(self._tickets) >= _MOST:
            raise Denied("too many downloads are about to begin: try again in a minute")
        made = secrets.token_urlsafe(24)
        self._tickets[made] = _Ticket(target, key_id, now + TICKET_SECONDS)
        return made

    def redeem(self, ticket: str, target: str, now: float) -> Key:
        """Raises Unauthenticated."""
        found = self._tickets.pop(ticket, None)
        key = self._keys.find(found.key) if found else None
        if found is None or key is None or found.expires < now or found.target != target:
            raise Unauthenticated("this link has been used or has expired: start the download again")
        return key


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def _mac(secret: str, purpose: str, body: str) -> str:
    derived = hmac.digest(secret.encode(), b"turnout-page", "sha256")
    return hmac.new(derived, f"{purpose}:{body}".encode(), hashlib.sha256).hexdigest()
