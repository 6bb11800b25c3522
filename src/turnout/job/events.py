"""Events of a job: one row for each change, in the same commit as the change."""

from enum import StrEnum

import msgspec


class EventKind(StrEnum):
    CREATED = "created"
    NOTE = "note"
    PLACED = "placed"
    STARTED = "started"
    STOPPING = "stopping"
    SAVED = "saved"
    RETRIED = "retried"
    RESTARTED = "restarted"
    ENDED = "ended"
    TRIMMED = "trimmed"
    DELETED = "deleted"
    PREEMPTED = "preempted"
    CHANGED = "changed"
    HUNG = "hung"
    IMAGE = "image"
    """Which image the job runs in."""


class Event(msgspec.Struct, frozen=True, gc=False):
    job: int
    at: int
    kind: EventKind
    message: str
