"""`turnout token`: prints a token for `Authorization: Bearer`."""

import time

from turnout import config
from turnout.cli import client, login
from turnout.errors import Misconfigured


def show(seconds: int, endpoint: str | None) -> None:
    stored = login.stored()
    endpoint = endpoint or config.client_endpoint() or stored.endpoint or login.DEFAULT_ENDPOINT
    key = login.find_key(endpoint, stored)
    if key is None:
        raise Misconfigured("a token needs a key: set TURNOUT_KEY, or run `turnout login`")
    print(client.token(key, int(time.time()) + seconds))
