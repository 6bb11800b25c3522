"""Whatever a client may send behind `Authorization: Bearer`."""

from typing import NamedTuple

from turnout.access import google
from turnout.access.keys import Key, Keys
from turnout.access.sessions import check_session_token
from turnout.access.tokens import check_token


class Bearer(NamedTuple):
    key: Key
    only: str = ""
    """The project that the token is for, if it is for one only."""

    @property
    def project(self) -> str:
        return self.only or self.key.project


def check_bearer(keys: Keys, token: str, now: float) -> Bearer:
    """Tokens that a key's holder made, that the service gave, or that a service account signed.

    Raises Unauthenticated.
    """
    if token.startswith("ts1."):
        return Bearer(*check_session_token(keys, token, now))
    # Every JWT begins with a brace, which is spelt so.
    if token.startswith("ey"):
        return Bearer(google.check_access_jwt(keys, token, now))
    return Bearer(check_token(keys, token, now))
