"""One-time links: a ticket in the URL, which is exchanged for a pass that only the browser has.

Both are random and held only in memory. They end with the service, like the shells and pages that they open.
"""

import secrets
from typing import NamedTuple

from turnout.errors import Denied

TICKET_SECONDS = 600
PASS_SECONDS = 86_400
_FRESH_SECONDS = 300
_MOST = 100_000


class Grant(NamedTuple):
    """What a ticket gives access to."""

    kind: str
    project: str
    job: int
    replica: str
    key: str
    """The id of the key that requested the ticket."""


class _Entry(NamedTuple):
    grant: Grant
    expires: float


class Tickets:
    def __init__(self) -> None:
        self._tickets: dict[str, _Entry] = {}
        self._last: dict[Grant, str] = {}
        self._passes: dict[str, _Entry] = {}

    def issue(self, grant: Grant, now: float) -> str:
        """A ticket that is valid for ten minutes. An unused ticket is returned again for five minutes, because some
        clients poll a job and print every link that is new to them.
        """
        last = self._last.get(grant, "")
        entry = self._tickets.get(last)
        if entry and entry.expires - now > TICKET_SECONDS - _FRESH_SECONDS:
            return last
        ticket = self._last[grant] = secrets.token_urlsafe(32)
        self._tickets[ticket] = _Entry(grant, now + TICKET_SECONDS)
        _prune(self._tickets, now)
        if len(self._last) > 2 * len(self._tickets) + 100:
            self._last = {entry.grant: ticket for ticket, entry in self._tickets.items()}
        return ticket

    def redeem(self, ticket: str, now: float) -> tuple[Grant, str]:
        """The grant, and a pass for it. Raises Denied."""
        entry = self._tickets.pop(ticket, None)
        if entry is None or entry.expires < now:
            raise Denied(
                "this link has been used, has expired, or was not issued by this service: ask for a new one"
            )
        secret = secrets.token_urlsafe(32)
        self._passes[secret] = _Entry(entry.grant, now + PASS_SECONDS)
        _prune(self._passes, now)
        return entry.grant, secret

    def check_pass(self, secret: str, now: float) -> Grant:
        """The grant of a pass. Raises Denied."""
        entry = self._passes.get(secret)
        if entry is None or entry.expires < now:
            raise Denied("this page has expired: ask for a new link")
        return entry.grant


def _prune(entries: dict[str, _Entry], now: float) -> None:
    """The oldest come first, and all have the same lifetime."""
    while entries:
        oldest = next(iter(entries))
        if entries[oldest].expires >= now and len(entries) <= _MOST:
            return
        del entries[oldest]
