"""A line of the audit trail, and a message to a webhook about a change."""

import msgspec


class AuditLine(msgspec.Struct, frozen=True, gc=False):
    """One change that somebody made or tried through an API."""

    at: int
    who: str
    """The id of a key, `root`, or the local user of a service without authentication."""
    project: str
    peer: str
    """The address that the request came from."""
    api: str
    call: str
    """The action of TI-A, or the method and path of the request."""
    job: int
    """0 if it is not about a job."""
    subject: str
    """The name of the job or of what else was changed."""
    status: int
    """Of HTTP; 200 for a change that was made together with this line."""
    code: str
    """The API's own error code; empty if it was not refused."""
    number: int = 0
    """Counts the lines of the store, from 1."""

    def about(self, at: int, project: str, job: int, subject: str) -> "AuditLine":
        """The same line about a job, at another time."""
        return AuditLine(
            at, self.who, project, self.peer, self.api, self.call, job, subject, self.status, self.code
        )


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A message that waits until a webhook has accepted it."""

    id: str
    """Receivers know by it that they have the message already."""
    hook: str
    project: str
    job: int
    at: int
    body: bytes
    attempts: int = 0
    next_at: int = 0
    """When it is sent next."""
    error: str = ""
    """Why the last attempt failed."""
    given_up: int | None = None
    """When it was given up."""
    number: int = 0
    """Counts the messages of the store."""
