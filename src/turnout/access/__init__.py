"""Who may do what: keys and the tokens made from them."""

from turnout.access.keys import Key, Keys, open_root_key
from turnout.access.tokens import check_token, make_token

__all__ = ["Key", "Keys", "check_token", "make_token", "open_root_key"]
