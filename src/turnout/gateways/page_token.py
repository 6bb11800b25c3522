"""Page tokens of object lists: the last key of a page."""

import base64
import binascii


def encode(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode()


def decode(token: str) -> str:
    """The key; empty if the token was not issued by this service."""
    try:
        key = base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return ""
    return key if encode(key) == token else ""
