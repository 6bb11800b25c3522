"""Converts jobs and their parts to table rows and back. A row has the order of its struct's fields."""

from types import NoneType
from typing import Any

import msgspec

from turnout.job import (
    Asset,
    Attempt,
    AuditLine,
    Delivery,
    Event,
    Job,
    NewJob,
    PastAttempt,
    Reason,
    Replica,
    ReplicaName,
    Sample,
    Spec,
    State,
    Submission,
)
from turnout.store.codes import FIRST_ENDED, KINDS, REASONS, REPLICA_STATES, STATES
from turnout.store.shapes import RowShape

Row = tuple[Any, ...]

LONGEST_LABEL = 2000
"""Bytes of an indexed text: PostgreSQL refuses more than 2.7 KB in an index."""

_STATE_OF = {code: state for state, code in STATES.items()}
_REASON_BY_CODE = {code: reason for reason, code in REASONS.items()}
_REASON_OF = _REASON_BY_CODE | {None: None}
_REPLICA_STATE_OF = {code: state for state, code in REPLICA_STATES.items()}
_KIND_OF = {code: kind for kind, code in KINDS.items()}

_JOB, _REPLICA, _EVENT, _PAST, _ASSET, _SUBMISSION, _AUDIT, _DELIVERY = map(
    RowShape.of, (Job, Replica, Event, PastAttempt, Asset, Submission, AuditLine, Delivery)
)
_percent = (float, NoneType)
_SAMPLE = RowShape(at=(int,), cpu=_percent, memory=_percent, gpu=_percent, gpu_memory=_percent)
_LABEL = RowShape(key=(str,), value=(str,))
_DOCUMENT = RowShape(document=(bytes,))

_encode_spec = msgspec.json.Encoder().encode
_decode_spec = msgspec.json.Decoder(Spec).decode


def storable(value: str | int) -> bool:
    """Whether a column can hold the value: 64 bits, or text without NUL and lone surrogates."""
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
        job.owner,
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


def job_of(row: Row) -> Job:
    _JOB.check(row)
    job = Job(*row)
    job.state = _STATE_OF[row[7]]
    job.reason = _REASON_OF[row[15]]
    return job


def damaged_job_of(row: Row) -> Job:
    """What can be read of a job that `job_of` cannot read. If its end is unknown, it counts as failed."""
    job = Job(*_JOB.repaired(row))
    state, reason = _STATE_OF.get(row[7]), _REASON_BY_CODE.get(row[15])
    if state and reason and row[7] >= FIRST_ENDED:
        job.state, job.reason = state, reason
    else:
        job.state, job.reason, job.message = State.FAILED, Reason.NODE_LOST, "its record cannot be read"
    job.ended = job.ended or job.updated
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


def replica_of(row: Row) -> Replica:
    _REPLICA.check(row)
    replica = Replica(*row)
    replica.state = _REPLICA_STATE_OF[row[4]]
    return replica


def event_row(event: Event) -> Row:
    return event.job, event.at, KINDS[event.kind], _storable(event.message)


def event_of(row: Row) -> Event:
    _EVENT.check(row)
    job, at, kind, message = row
    return Event(job, at, _KIND_OF[kind], message)


def label_rows(job_id: int, labels: dict[str, str]) -> list[Row]:
    return [(job_id, key, value) for key, value in labels.items()]


def past_row(past: PastAttempt) -> Row:
    return (
        past.job,
        past.attempt,
        past.started,
        past.ended,
        REASONS[past.reason],
        _storable(past.message),
        past.replica,
        past.code,
    )


def past_of(row: Row) -> PastAttempt:
    _PAST.check(row)
    job, attempt, started, ended, reason, message, replica, code = row
    return PastAttempt(job, attempt, started, ended, _REASON_BY_CODE[reason], message, replica, code)


def submission_row(submission: Submission) -> Row:
    return submission.job, submission.attempt, submission.engine, submission.engine_id


def submission_of(row: Row) -> Submission:
    _SUBMISSION.check(row)
    return Submission(*row)


def sample_row(attempt: Attempt, sample: Sample) -> Row:
    used = sample.cpu, sample.memory, sample.gpu, sample.gpu_memory
    return (*attempt, *sample.replica, sample.at, *used)


def sample_of(replica: ReplicaName, row: Row) -> Sample:
    _SAMPLE.check(row)
    return Sample(replica, *row)


def audit_row(line: AuditLine) -> Row:
    return (
        line.at,
        line.who,
        line.project,
        line.peer,
        line.api,
        _storable(line.call),
        line.job,
        _storable(line.subject),
        line.status,
        line.code,
    )


def audit_line_of(row: Row) -> AuditLine:
    _AUDIT.check(row)
    return AuditLine(*row)


def delivery_row(delivery: Delivery) -> Row:
    return (
        delivery.id,
        delivery.hook,
        delivery.project,
        delivery.job,
        delivery.at,
        delivery.body,
        delivery.attempts,
        delivery.next_at,
        _storable(delivery.error),
        delivery.given_up,
    )


def delivery_of(row: Row) -> Delivery:
    _DELIVERY.check(row)
    return msgspec.structs.replace(Delivery(*row), body=bytes(row[5]))


def asset_row(asset: Asset) -> Row:
    return (
        asset.project,
        asset.kind,
        asset.id,
        asset.scope,
        asset.name,
        asset.created,
        asset.updated,
        asset.document,
    )


def asset_change(asset: Asset) -> Row:
    """The columns that can change, then its key."""
    return asset.scope, asset.name, asset.updated, asset.document, asset.project, asset.kind, asset.id


def label_of(row: Row) -> tuple[str, str]:
    _LABEL.check(row)
    return row[0], row[1]


def document_of(row: Row) -> bytes:
    _DOCUMENT.check(row)
    return bytes(row[0])


def asset_of(row: Row) -> Asset:
    _ASSET.check(row)
    project, kind, asset_id, scope, name, created, updated, document = row
    return Asset(project, kind, asset_id, scope, name, created, updated, bytes(document))


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
        replica.restarts,
    )


def _storable(message: str) -> str:
    """Messages quote programs and file names with any bytes. Characters that cannot be stored are replaced."""
    if message.isascii() and "\0" not in message:
        return message
    return message.encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
