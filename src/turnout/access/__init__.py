"""Who may do what: keys and the tokens made from them."""

from turnout.access.keys import Key, Keys, may_use, open_root_key
from turnout.access.sessions import check_session_token, make_session_token
from turnout.access.tokens import check_token, make_token

__all__ = [
    "Key",
    "Keys",
    "check_session_token",
    "check_token",
    "make_session_token",
    "make_token",
    "may_use",
    "open_root_key",
]
