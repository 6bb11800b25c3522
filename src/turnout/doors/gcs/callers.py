"""Who asks, and in which project."""

import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.types import Scope

from turnout.access import Keys, check_token
from turnout.config import Settings
from turnout.errors import Unauthenticated

Stranger = Callable[[Scope], str]
"""Why a request does not surely come from the user who runs the service, on this machine; empty if it does."""


class Callers:
    """Tools that are pointed here by STORAGE_EMULATOR_HOST send no credentials.

    Those of the user who runs the service are let in all the same, on this machine only: whoever may read the root
    key's file needs no proof of holding the key. Everybody else sends a token, unless the settings say otherwise.
    """

    def __init__(self, keys: Keys, settings: Settings, stranger: Stranger) -> None:
        self._keys = keys
        self._settings = settings
        self._stranger = stranger

    def project(self, request: Request) -> str:
        """Raises Unauthenticated."""
        if self._settings.no_auth:
            return self._keys.root.project
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme:
            if scheme.lower() != "bearer":
                raise Unauthenticated("send Authorization: Bearer <token>")
            return check_token(self._keys, token.strip(), time.time()).project
        if self._settings.storage.gcs.anonymous and not request.headers.get("origin"):
            return self._keys.root.project
        reason = self._stranger(request.scope) if self._settings.loopback else "it listens to other machines"
        if reason:
            raise Unauthenticated(
                f"send Authorization: Bearer <token>: without one only the user who runs the service is let in, on"
                f" its own machine ({reason}); [storage.gcs] anonymous = true lets everybody in"
            )
        return self._keys.root.project
