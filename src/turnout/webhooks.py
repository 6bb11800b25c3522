"""The settings in `[webhooks.X]`: URLs that get a message when a job changes."""

import base64
import binascii
from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from turnout.errors import Misconfigured

RESTARTED, HUNG, PREEMPTED = "restarted", "hung", "preempted"
STATES = ("queued", "preparing", "running", "stopping", "succeeded", "failed", "stopped")
EVENTS = (*STATES, RESTARTED, HUNG, PREEMPTED)
"""Each state of a job, and three things that happen on the way."""

_LEAST_SECRET = 16
_PREFIX = "whsec_"


class Webhook(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    url: str = ""
    secret: str = ""
    """Signs the messages: `whsec_` and base64, or any text. Slack needs none."""
    events: list[str] = []
    """Empty: every change of a job's state."""
    projects: list[str] = []
    """Empty: all."""
    only_named: bool = False
    """Only for jobs that name it themselves."""
    format: Literal["json", "slack"] = "json"

    @property
    def key(self) -> bytes:
        if self.secret.startswith(_PREFIX):
            return base64.b64decode(self.secret.removeprefix(_PREFIX), validate=True)
        return self.secret.encode()


def check(webhooks: Mapping[str, Webhook]) -> None:
    """Raises Misconfigured."""
    for name, hook in webhooks.items():
        table = f"[webhooks.{name}]"
        _check_url(table, hook.url)
        try:
            size = len(hook.key)
        except binascii.Error:
            raise Misconfigured(f"{table} secret: what follows {_PREFIX} must be base64") from None
        if (hook.secret or hook.format == "json") and size < _LEAST_SECRET:
            raise Misconfigured(
                f"{table} secret must have at least {_LEAST_SECRET} bytes; it signs the messages"
            )
        for event in hook.events:
            if event not in EVENTS:
                known = ", ".join(EVENTS)
                raise Misconfigured(f"{table} events: {event!r} is not known; there are {known}")


def _check_url(table: str, url: str) -> None:
    """The messages do not have the URL, whose path may be a secret. Raises Misconfigured."""
    parts = urlsplit("")
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise Misconfigured(f"{table} url must begin with https:// or http:// and have a host")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise Misconfigured(f"{table} url has a space or another character that must be encoded, such as %20")
    if parts.username is not None:
        raise Misconfigured(
            f"{table} url: a user and a password before the host are not sent; leave them out"
        )
