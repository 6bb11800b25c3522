"""`turnout token`: prints a token for `Authorization: Bearer`."""

import time

from turnout.cli import client, login
from turnout.errors import Misconfigured


def show(seconds: int, endpoint: str | None) -> None:
    stored = login.stored()
    key = login.find_key(login.find_endpoint(endpoint, stored), stored)
    if key is None:
        raise Misconfigured("a token needs a key: set TURNOUT_KEY, or run `turnout login`")
    print(client.token(key, int(time.time()) + seconds))
