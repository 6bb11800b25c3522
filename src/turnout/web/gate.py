"""Who may look into a running job: whoever holds a link that was made for somebody who may stop it, once."""

import time

from turnout.access import Keys
from turnout.access.tickets import Errand, Tickets
from turnout.errors import Denied

SHELL, DASHBOARD = "shell", "dashboard"


class Gate:
    def __init__(self, keys: Keys, no_auth: bool) -> None:
        self._keys = keys
        self._no_auth = no_auth
        self._tickets = Tickets()

    def issue(self, errand: Errand) -> str:
        return self._tickets.issue(errand, time.time())

    def redeem(self, ticket: str, kind: str) -> tuple[Errand, str]:
        """What a link is for, and a pass that takes its place. Raises Denied."""
        errand, secret = self._tickets.redeem(ticket, time.time())
        return self._checked(errand, kind), secret

    def show(self, secret: str, kind: str) -> Errand:
        """What a pass is for. Raises Denied."""
        return self._checked(self._tickets.show(secret, time.time()), kind)

    def _checked(self, errand: Errand, kind: str) -> Errand:
        """A key that was revoked opens nothing any more."""
        if errand.kind != kind:
            raise Denied("this link leads to something else: ask for a new one")
        if not self._no_auth and self._keys.find(errand.key) is None:
            raise Denied("the key that asked for this link was revoked")
        return errand
