"""Jobs, replicas and events to rows of the tables and back. A row has the order of its struct's fields."""

from collections.abc import Sequence
from typing import Any

import msgspec

from turnout.job import Event, Job, NewJob, Replica, Spec
from turnout.store.codes import KINDS, REASONS, REPLICA_STATES, STATES

Row = tuple[Any, ...]

_STATE_OF = {code: state for state, code in STATES.items()}
_REASON_OF = {code: reason for reason, code in REASONS.items()} | {None: None}
_REPLICA_STATE_OF = {code: state for state, code in REPLICA_STATES.items()}
_KIND_OF = {code: kind for kind, code in KINDS.items()}

_encode_spec = msgspec.json.Encoder().encode
_decode_spec = msgspec.json.Decoder(Spec).decode


def storable(value: str | int) -> bool:
    """Whether a row can hold it at all: 64 bits, text without NUL and halves of pairs. Drivers refuse all else."""
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 63
    return "\0" not in value and (value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value))


def job_row(job: Job) -> Row:
    return (
        job.id,
        job.project,
        job.dialect,
        job.scope,
        job.handle,
        job.name,
        job.cluster,
        STATES[job.state],
        job.priority,
        job.created,
        job.updated,
        job.attempt,
        job.started,
        job.ended,
        job.deleted,
        _reason(job),
        _storable(job.message),
    )


def job_change(job: Job) -> Row:
    """The columns that change in a job's life, then its id."""
    return (
        STATES[job.state],
        job.priority,
        job.updated,
        job.attempt,
        job.started,
        job.ended,
        _reason(job),
        _storable(job.message),
        job.id,
    )


def job_of(row: Sequence[Any]) -> Job:
    job = Job(*row)
    job.state = _STATE_OF[row[7]]
    job.reason = _REASON_OF[row[15]]
    return job


def document_row(job: Job, new: NewJob) -> Row:
    return job.id, new.document, _encode_spec(new.spec)


def spec_of(encoded: bytes) -> Spec:
    return _decode_spec(encoded)


def replica_row(replica: Replica, rank: int) -> Row:
    return (replica.job, replica.attempt, replica.role, replica.index, *_replica_state(replica), rank)


def replica_change(replica: Replica) -> Row:
    """The columns that change in a replica's life, then its key."""
    return (*_replica_state(replica), replica.job, replica.attempt, replica.role, replica.index)


def replica_of(row: Sequence[Any]) -> Replica:
    replica = Replica(*row)
    replica.state = _REPLICA_STATE_OF[row[4]]
    return replica


def event_row(event: Event) -> Row:
    return event.job, event.at, KINDS[event.kind], _storable(event.message)


def event_of(row: Sequence[Any]) -> Event:
    job, at, kind, message = row
    return Event(job, at, _KIND_OF[kind], message)


def _reason(job: Job) -> int | None:
    return None if job.reason is None else REASONS[job.reason]


def _replica_state(replica: Replica) -> Row:
    return (
        REPLICA_STATES[replica.state],
        replica.node,
        replica.address,
        replica.pid,
        replica.gpus,
        replica.started,
        replica.ended,
        replica.exit_code,
        replica.signal,
        _storable(replica.message),
    )


def _storable(message: str) -> str:
    """Messages quote programs and file names, which hold any bytes: what no database takes is replaced."""
    if message.isascii() and "\0" not in message:
        return message
    return message.encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
