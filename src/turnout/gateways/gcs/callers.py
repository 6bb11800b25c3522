"""Who asks, and in which project."""

import time
from collections.abc import Callable
from ipaddress import ip_address
from socket import gethostname

from starlette.requests import Request
from starlette.types import Scope

from turnout.access import Keys, check_bearer
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
            return check_bearer(self._keys, token.strip(), time.time()).project
        reason = self._why_not(request)
        if reason:
            raise Unauthenticated(
                f"send Authorization: Bearer <token>: without one only the user who runs the service is let in, on"
                f" its own machine ({reason}); [storage.gcs] anonymous = true lets everybody in"
            )
        return self._keys.root.project

    def _why_not(self, request: Request) -> str:
        """Why a request without credentials is not let in."""
        if "origin" in request.headers:
            return "it comes from a web page"
        if self._settings.storage.gcs.anonymous:
            # A page whose name was pointed here sends no Origin when it reads, but it cannot help naming itself.
            known = _is_address(request.url.hostname or "")
            return "" if known else "the service must be named by its address, or as localhost"
        return self._stranger(request.scope) if self._settings.loopback else "it listens to other machines"


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return host in ("localhost", gethostname())
    return True
