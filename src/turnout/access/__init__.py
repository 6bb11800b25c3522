"""Authentication: keys, and the tokens, links and signatures made from them."""

from turnout.access.bearer import Bearer, bearer_token, check_bearer
from turnout.access.job_keys import JobKeys
from turnout.access.keys import FindsKeys, Key, Keys, may_use, open_root_key
from turnout.access.page_sessions import PageSessions
from turnout.access.sessions import check_session_token, make_session_token
from turnout.access.tokens import check_token, make_token

__all__ = [
    "Bearer",
    "FindsKeys",
    "JobKeys",
    "Key",
    "Keys",
    "PageSessions",
    "bearer_token",
    "check_bearer",
    "check_session_token",
    "check_token",
    "make_session_token",
    "make_token",
    "may_use",
    "open_root_key",
]
