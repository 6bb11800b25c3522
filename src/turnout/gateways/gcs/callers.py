"""Authenticates callers, by a token or by the user who owns the connection."""

import time
from collections.abc import Callable
from ipaddress import ip_address
from socket import gethostname

from starlette.requests import Request
from starlette.types import Scope

from turnout.access import JobKeys, bearer_token, check_bearer
from turnout.access.job_keys import SCOPE, is_job_token, key_id
from turnout.config import Settings
from turnout.errors import Denied, Unauthenticated
from turnout.job import Attempt

WhyNotOwner = Callable[[Scope], str]
"""Returns why a request may not come from the user who runs the service on this machine; empty if it certainly does."""


class GcsCallers:
    """Clients that use STORAGE_EMULATOR_HOST send no credentials.

    They are accepted from the user who runs the service, on this machine only: that user can read the root key's file
    anyway. Other callers need a token, unless the settings say otherwise. A program in a gang's own network has the
    rights of its job without one.
    """

    def __init__(self, jobs: JobKeys, settings: Settings, why_not_owner: WhyNotOwner) -> None:
        self._jobs = jobs
        self._keys = jobs.keys
        self._settings = settings
        self._why_not_owner = why_not_owner

    def identify(self, request: Request) -> tuple[str, str]:
        """The project, and the id of the key. Raises Unauthenticated."""
        root = self._keys.root
        authorization = request.headers.get("authorization", "")
        attempt: Attempt | None = request.scope.get(SCOPE)
        if is_job_token(token := bearer_token(authorization)):
            return self._of_token(token, attempt)
        if attempt and not authorization:
            return self._of_network(attempt)
        if self._settings.no_auth and not attempt:
            return root.project, root.id
        if authorization:
            if not token:
                raise Unauthenticated("send Authorization: Bearer <token>")
            bearer = check_bearer(self._keys, token, time.time())
            return bearer.project, bearer.key.id
        reason = self._why_not(request)
        if reason:
            raise Unauthenticated(
                "send Authorization: Bearer <token>. Without a token, only the user who runs the service has access, "
                f"on the same machine ({reason}); [storage.gcs] anonymous = true gives everybody access"
            )
        return root.project, root.id

    def _of_token(self, token: str, attempt: Attempt | None) -> tuple[str, str]:
        found, project = self._jobs.check_token(token)
        if attempt and attempt != found:
            raise Denied("the token belongs to another job")
        return project, key_id(found)

    def _of_network(self, attempt: Attempt) -> tuple[str, str]:
        project = self._jobs.project(attempt)
        if not project:
            raise Denied("the job has ended")
        return project, key_id(attempt)

    def _why_not(self, request: Request) -> str:
        """Why a request without credentials is refused."""
        if "origin" in request.headers:
            return "it comes from a web page"
        if self._settings.storage.gcs.anonymous:
            # A web page whose name resolves to this address sends no Origin when it reads, but its name is in Host.
            known = _is_address(request.url.hostname or "")
            return "" if known else "the service must be named by its address, or as localhost"
        return (
            self._why_not_owner(request.scope) if self._settings.loopback else "it listens to other machines"
        )


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return host in ("localhost", gethostname())
    return True
