"""Checks access to shells and pages of programs: a link made for a key that may stop the job, valid once."""

import asyncio
import time
from contextlib import AbstractContextManager

from turnout.access import Keys
from turnout.access.tickets import Grant, Tickets
from turnout.errors import Denied

SHELL, PROGRAM_PAGE = "shell", "program page"


class BrowserAccess:
    def __init__(self, keys: Keys, no_auth: bool) -> None:
        self._keys = keys
        self._no_auth = no_auth
        self._tickets = Tickets()

    def issue(self, grant: Grant) -> str:
        return self._tickets.issue(grant, time.monotonic())

    def redeem(self, ticket: str, kind: str) -> tuple[Grant, str]:
        """The grant of a link, and a pass that replaces the link. Raises Denied."""
        grant, secret = self._tickets.redeem(ticket, time.monotonic())
        return self._checked(grant, kind), secret

    def show(self, secret: str, kind: str) -> Grant:
        """The grant of a pass. Raises Denied."""
        return self._checked(self._tickets.check_pass(secret, time.monotonic()), kind)

    def watch(self, grant: Grant) -> AbstractContextManager[asyncio.Event]:
        """An event that is set when the key that requested the link is revoked."""
        return self._keys.watch(grant.key)

    def _checked(self, grant: Grant, kind: str) -> Grant:
        if grant.kind != kind:
            raise wrong_link()
        if not self._no_auth and self._keys.find(grant.key) is None:
            raise Denied("the key that requested this link was revoked")
        return grant


def wrong_link() -> Denied:
    """The link was made for another job or replica, or for another kind of page."""
    return Denied("this link is for another page: ask for a new one")
