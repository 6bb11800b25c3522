"""The API call that is being served: who makes it, and what the audit trail records about it.

The web layer begins a call for each request. The API that serves it adds the caller, at the one place where it
authenticates, and the error code if it refuses the call. A task of the service's own has no call.
"""

import time
from contextvars import ContextVar

from turnout.job import AuditLine

_LONGEST = 300


class ApiCall:
    __slots__ = (
        "api",
        "changes",
        "code",
        "internal",
        "job",
        "key",
        "name",
        "notes",
        "peer",
        "project",
        "recorded",
        "subject",
        "waits",
    )

    def __init__(self, api: str, name: str, peer: str, *, changes: bool) -> None:
        self.api = api
        self.name = name
        self.peer = peer
        self.changes = changes
        """Whether it is a call that changes something."""
        self.key = ""
        """The key of the caller; empty until it is authenticated."""
        self.project = ""
        self.job = 0
        self.subject = ""
        self.notes: tuple[str, ...] = ()
        """What the job that it created begins with, for the user."""
        self.code = ""
        """The API's own error code; empty if it is not refused."""
        self.internal = False
        """Whether it is refused for an error of the service."""
        self.recorded = False
        """Whether the audit trail has it: it was written in the commit of the change."""
        self.waits = False
        """Whether its reply waits for a change; then its duration is not measured."""

    def line(self, who: str, status: int = 200) -> AuditLine:
        return AuditLine(
            time.time_ns(), who, self.project, self.peer, self.api, self.name[:_LONGEST], self.job,
            self.subject[:_LONGEST], status, self.code,
        )  # fmt: skip


_CURRENT: ContextVar[ApiCall | None] = ContextVar("call", default=None)


def current() -> ApiCall | None:
    return _CURRENT.get()


begin = _CURRENT.set
end = _CURRENT.reset


def serve_by(api: str) -> None:
    """`api`: the API that serves the call."""
    if call := _CURRENT.get():
        call.api = api


def identify(key: str, project: str, *, changes: bool | None = None, name: str = "") -> None:
    """Call it once the caller is authenticated. `changes` and `name` replace what was taken from the request's head."""
    call = _CURRENT.get()
    if call is None:
        return
    call.key, call.project = key, project
    if changes is not None:
        call.changes = changes
    if name:
        call.name = name


def about(subject: str, job: int = 0) -> None:
    """Sets what the call is about, such as the name of a job, a key or a bucket."""
    if call := _CURRENT.get():
        call.subject, call.job = subject, job


def created(notes: tuple[str, ...]) -> None:
    """`notes`: the notes of the job that the call created."""
    if call := _CURRENT.get():
        call.notes = notes


def refused(code: str, *, internal: bool = False) -> None:
    if call := _CURRENT.get():
        call.code, call.internal = code, internal


def recorded() -> None:
    """Call it when the audit line was written in the commit of the change."""
    if call := _CURRENT.get():
        call.recorded = True


def waits() -> None:
    """Call it if the reply comes only when something changes."""
    if call := _CURRENT.get():
        call.waits = True
