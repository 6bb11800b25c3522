"""The documents of the native API."""

from typing import Any

import msgspec

from turnout.job import Event, Job, Replica, Trial, host_name, to_uuid
from turnout.service import Explanation, Line


class ReplicaDocument(msgspec.Struct):
    name: str
    state: str
    exit_code: int | None
    signal: int | None
    pid: int | None
    address: str
    gpus: str
    started: int | None
    ended: int | None
    message: str


class JobDocument(msgspec.Struct):
    id: str
    uuid: str
    project: str
    dialect: str
    cluster: str
    name: str
    state: str
    reason: str | None
    message: str
    created: int
    started: int | None
    ended: int | None
    attempt: int
    replicas: list[ReplicaDocument]


class QueuePlace(msgspec.Struct):
    place: int
    of: int


class EventDocument(msgspec.Struct):
    at: int
    kind: str
    message: str


class TrialDocument(msgspec.Struct):
    number: int
    """From 1 on."""
    id: str
    job: str
    """The id of the job that tries it."""
    state: str
    parameters: dict[str, bool | int | float | str]
    value: float | None
    started: int | None
    ended: int | None
    message: str


class ExplainDocument(JobDocument):
    why: list[str]
    queue: QueuePlace | None
    missing: dict[str, float] | None
    events: list[EventDocument]
    workspaces: list[str]
    """Where those are that were to be kept, on the service's machine."""
    trials: list[TrialDocument]
    """Of a search, in the order in which they were chosen."""


class LineDocument(msgspec.Struct):
    at: int
    replica: str
    pod: str
    stream: str
    text: str


class BucketDocument(msgspec.Struct):
    name: str
    created: int


class ObjectDocument(msgspec.Struct):
    key: str
    size: int
    modified: int
    etag: str
    crc32c: str | None
    """Base64 of its four bytes; None for what a job wrote itself."""
    content_type: str


class PageDocument(msgspec.Struct):
    objects: list[ObjectDocument]
    prefixes: list[str]
    next: str
    """Give it as `after` to go on; empty at the end."""


def line_document(job: Job, line: Line) -> LineDocument:
    pod = host_name(job.id, job.name, line.replica)
    return LineDocument(line.at, str(line.replica), pod, ("stdout", "stderr")[line.stream], line.text)


def job_document(job: Job, replicas: tuple[Replica, ...]) -> JobDocument:
    return JobDocument(**_job_fields(job, replicas))


def explain_document(
    job: Job,
    replicas: tuple[Replica, ...],
    explanation: Explanation,
    events: list[Event],
    workspaces: list[str],
    trials: list[Trial],
) -> ExplainDocument:
    return ExplainDocument(
        **_job_fields(job, replicas),
        why=explanation.why,
        queue=QueuePlace(explanation.place, explanation.waiting) if explanation.place else None,
        missing=dict(explanation.missing) or None,
        events=[EventDocument(event.at, event.kind, event.message) for event in events],
        workspaces=workspaces,
        trials=[
            TrialDocument(
                trial.number + 1,
                trial.id,
                str(trial.child),
                trial.state,
                trial.parameters,
                trial.value,
                trial.started,
                trial.ended,
                trial.message,
            )
            for trial in trials
        ],
    )


def _job_fields(job: Job, replicas: tuple[Replica, ...]) -> dict[str, Any]:
    return {
        "id": str(job.id),
        "uuid": to_uuid(job.id),
        "project": job.project,
        "dialect": job.dialect,
        "cluster": job.cluster,
        "name": job.name,
        "state": job.state,
        "reason": job.reason,
        "message": job.message,
        "created": job.created,
        "started": job.started,
        "ended": job.ended,
        "attempt": job.attempt,
        "replicas": [
            ReplicaDocument(
                str(r.name),
                r.state,
                r.exit_code,
                r.signal,
                r.pid,
                r.address,
                r.gpus,
                r.started,
                r.ended,
                r.message,
            )
            for r in replicas
        ],
    }
