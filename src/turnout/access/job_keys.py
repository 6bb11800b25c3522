"""Keys of running jobs: computed from a secret of the service and the attempt, so that none is stored.

A program gets them in its environment. They open the buckets of the job's project, and nothing else, until the attempt
has ended. Only the gateways of storage accept them.
"""

import asyncio
import hmac
import os
import re
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from turnout.access.keys import Key, Keys
from turnout.errors import Unauthenticated
from turnout.job import Attempt

_KEY_ID = re.compile(r"JOB([0-9]{1,19})A([0-9]{1,9})")
_TOKEN = re.compile(r"tj1\.([0-9]{1,19}\.[0-9]{1,9})\.[0-9a-f]{64}")
_SECRET_CHARACTERS = 40
_PREFIX = "tj1."
SCOPE = "turnout.attempt"
"""In the scope of a request: the attempt from whose own network it comes."""


class JobKey(NamedTuple):
    id: str
    secret: str
    session: str
    """The session token that goes with id and secret, as temporary keys of the clouds have one."""
    token: str
    """A bearer token, for Google's clients."""
    address: str
    """A part of the address of the metadata server, where anybody on the machine can reach that."""


class JobKeys:
    def __init__(self, keys: Keys, secret: bytes) -> None:
        self.keys = keys
        self._secret = secret
        self.project: Callable[[Attempt], str] = lambda attempt: ""
        """The project of a live attempt; empty if it has ended or never was."""

    def make(self, attempt: Attempt) -> JobKey:
        secret = self._digest("secret", attempt)[:_SECRET_CHARACTERS]
        address = f"{attempt}.{self._digest('address', attempt)}"
        return JobKey(key_id(attempt), secret, self._session(attempt), self._token(attempt), address)

    def find(self, key_id: str) -> Key | None:
        """The key of a live attempt, or a key of a project."""
        attempt = attempt_of(key_id)
        if attempt is None:
            return self.keys.find(key_id)
        project = self.project(attempt)
        secret = self._digest("secret", attempt)[:_SECRET_CHARACTERS]
        return Key(key_id, secret, project) if project else None

    def accepts_session(self, key_id: str, session: str) -> bool:
        """Whether the session token belongs to the key. Keys that are not of jobs have none, and it is ignored."""
        attempt = attempt_of(key_id)
        if attempt is None:
            return True
        return hmac.compare_digest(session.encode("utf-8", "replace"), self._session(attempt).encode())

    def only(self, attempt: Attempt) -> "OwnKeys":
        """The keys that are accepted in the private network of this attempt."""
        return OwnKeys(self, attempt)

    def watch(self, key_id: str) -> AbstractContextManager[asyncio.Event]:
        """An event that is set when the key is revoked or its job has ended."""
        return self.keys.watch(key_id)

    @property
    def root(self) -> Key:
        return self.keys.root

    def check_token(self, token: str) -> tuple[Attempt, str]:
        """The attempt and its project. Raises Unauthenticated."""
        found = _TOKEN.fullmatch(token)
        attempt = Attempt.parse(found[1]) if found else Attempt(0, 0)
        matches = hmac.compare_digest(token.encode("utf-8", "replace"), self._token(attempt).encode())
        project = self.project(attempt) if found and matches else ""
        if not project:
            raise Unauthenticated("no running job has this token: a job's token ends with its job")
        return attempt, project

    def at_address(self, address: str) -> Attempt | None:
        """The live attempt whose secret this part of an address is."""
        text, _, digest = address.rpartition(".")
        found = _KEY_ID.fullmatch("JOB" + text.replace(".", "A", 1))
        attempt = Attempt(int(found[1]), int(found[2])) if found else Attempt(0, 0)
        expected = self._digest("address", attempt)
        matches = hmac.compare_digest(digest.encode("utf-8", "replace"), expected.encode())
        return attempt if found and matches and self.project(attempt) else None

    def job_changed(self, job_id: int) -> None:
        """Ends the requests that are under way with the key of a job, if that has ended."""
        for watched in self.keys.watched():
            attempt = attempt_of(watched)
            if attempt and attempt.job == job_id and not self.project(attempt):
                self.keys.end_requests(watched)

    def _session(self, attempt: Attempt) -> str:
        return self._digest("session", attempt)

    def _token(self, attempt: Attempt) -> str:
        return f"{_PREFIX}{attempt}.{self._digest('token', attempt)}"

    def _digest(self, purpose: str, attempt: Attempt) -> str:
        return hmac.digest(self._secret, f"turnout-job-{purpose}:{attempt}".encode(), "sha256").hex()


class OwnKeys:
    """All keys but those of other jobs."""

    def __init__(self, jobs: JobKeys, attempt: Attempt) -> None:
        self._jobs = jobs
        self._attempt = attempt

    @property
    def root(self) -> Key:
        return self._jobs.root

    def find(self, key_id: str) -> Key | None:
        return self._jobs.find(key_id) if attempt_of(key_id) in (None, self._attempt) else None

    def accepts_session(self, key_id: str, session: str) -> bool:
        return self._jobs.accepts_session(key_id, session)

    def watch(self, key_id: str) -> AbstractContextManager[asyncio.Event]:
        return self._jobs.watch(key_id)


def key_id(attempt: Attempt) -> str:
    return f"JOB{attempt.job}A{attempt.number}"


def attempt_of(key_id: str) -> Attempt | None:
    """The attempt that a key id names; None if it is not that of a job."""
    found = _KEY_ID.fullmatch(key_id)
    return Attempt(int(found[1]), int(found[2])) if found else None


def is_job_token(token: str) -> bool:
    return token.startswith(_PREFIX)


def open_secret(path: Path) -> bytes:
    """The secret in the file; if there is none, a new one, written with mode 0600."""
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        found = b""
    if len(found) >= 32:
        path.chmod(0o600)
        return found
    made = secrets.token_bytes(32)
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(made)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    return made
