"""Checks the token of an `Authorization: Bearer` header."""

from typing import NamedTuple

from turnout.access import google
from turnout.access.keys import Key, Keys
from turnout.access.sessions import check_session_token
from turnout.access.tokens import check_token


class Bearer(NamedTuple):
    key: Key
    limited_to: str = ""
    """The project that the token is limited to; empty: not limited."""

    @property
    def project(self) -> str:
        return self.limited_to or self.key.project


def bearer_token(authorization: str) -> str:
    """The token of an Authorization header; empty if the header is missing or has another scheme."""
    scheme, _, token = authorization.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def check_bearer(keys: Keys, token: str, now: float) -> Bearer:
    """Accepts bearer tokens, session tokens of the service, and JWTs of service accounts.

    Raises Unauthenticated.
    """
    if token.startswith("ts1."):
        return Bearer(*check_session_token(keys, token, now))
    # Every JWT begins with `{"`, which is `ey` in base64.
    if token.startswith("ey"):
        return Bearer(google.check_access_jwt(keys, token, now))
    return Bearer(check_token(keys, token, now))
