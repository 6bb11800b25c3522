"""Links that open one page once: a ticket in the address, which is swapped for a pass that only the browser has.

Both are random and remembered here only, so that they end with the service: what they open ends with it too.
"""

import secrets
from typing import NamedTuple

from turnout.errors import Denied

TICKET_SECONDS = 600
PASS_SECONDS = 86_400
_FRESH_SECONDS = 300
_MOST = 100_000


class Errand(NamedTuple):
    """What somebody may do, and as whom."""

    kind: str
    project: str
    job: int
    replica: str
    key: str
    """The id of the key that asked for it."""


class _Kept(NamedTuple):
    errand: Errand
    expires: float


class Tickets:
    def __init__(self) -> None:
        self._tickets: dict[str, _Kept] = {}
        self._last: dict[Errand, str] = {}
        self._passes: dict[str, _Kept] = {}

    def issue(self, errand: Errand, now: float) -> str:
        """A ticket that lasts for ten minutes. One that is fresh and was not used is given again: clients that look
        at a job every few seconds, and print each link that they have not seen, would print many.
        """
        last = self._last.get(errand, "")
        kept = self._tickets.get(last)
        if kept and kept.expires - now > TICKET_SECONDS - _FRESH_SECONDS:
            return last
        ticket = self._last[errand] = secrets.token_urlsafe(32)
        self._tickets[ticket] = _Kept(errand, now + TICKET_SECONDS)
        _prune(self._tickets, now)
        if len(self._last) > 2 * len(self._tickets) + 100:
            self._last = {kept.errand: ticket for ticket, kept in self._tickets.items()}
        return ticket

    def redeem(self, ticket: str, now: float) -> tuple[Errand, str]:
        """What it is for, and a pass for that. Raises Denied."""
        kept = self._tickets.pop(ticket, None)
        if kept is None or kept.expires < now:
            raise Denied(
                "this link has been used, has expired, or is not one of this service's: ask for a new one"
            )
        secret = secrets.token_urlsafe(32)
        self._passes[secret] = _Kept(kept.errand, now + PASS_SECONDS)
        _prune(self._passes, now)
        return kept.errand, secret

    def show(self, secret: str, now: float) -> Errand:
        """What a pass is for. Raises Denied."""
        kept = self._passes.get(secret)
        if kept is None or kept.expires < now:
            raise Denied("this page has been left alone for too long: ask for a new link")
        return kept.errand


def _prune(kept: dict[str, _Kept], now: float) -> None:
    """The oldest are first, and all last equally long."""
    while kept:
        oldest = next(iter(kept))
        if kept[oldest].expires >= now and len(kept) <= _MOST:
            return
        del kept[oldest]
