"""The documents of the native API."""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from turnout.job import Event, Job, Replica, Trial, host_name, to_uuid
from turnout.service import Explanation, JobView, Line


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


class OlderDocument(msgspec.Struct):
    id: str
    project: str
    place: str
    state: str


class JobDocument(msgspec.Struct, kw_only=True):
    id: str
    uuid: str
    project: str
    dialect: str
    cluster: str
    place: str
    """Where the job runs, in the words of its API: `on ap-beijing`, `in us-central1`; empty if it has none."""
    name: str
    state: str
    reason: str | None
    message: str
    created: int
    started: int | None
    ended: int | None
    attempt: int
    replicas: list[ReplicaDocument]
    older: list[OlderDocument] = []
    """Older jobs of the same name, the newest first; at most five."""


class QueuePlace(msgspec.Struct):
    place: int
    of: int


class EventDocument(msgspec.Struct):
    at: int
    kind: str
    message: str


class TrialDocument(msgspec.Struct):
    number: int
    """Counted from 1."""
    id: str
    job: str
    """The id of the job that runs it."""
    state: str
    parameters: dict[str, bool | int | float | str]
    value: float | None
    started: int | None
    ended: int | None
    message: str


class LastLines(msgspec.Struct):
    replica: str
    lines: list[str]


class ExplainDocument(JobDocument, kw_only=True):
    why: list[str]
    queue: QueuePlace | None
    missing: dict[str, float] | None
    events: list[EventDocument]
    workspaces: list[str]
    """Paths of the kept workspaces on the service's machine."""
    trials: list[TrialDocument]
    """The trials of a search, in the order of their creation."""
    last_lines: LastLines | None = None
    """The last lines of the replica that failed first, if the job failed."""


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
    """Base64 of its four bytes; None for files that a job wrote."""
    content_type: str


class PageDocument(msgspec.Struct):
    objects: list[ObjectDocument]
    prefixes: list[str]
    next: str
    """The `after` of the next page; empty on the last page."""


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
        queue=QueuePlace(explanation.position, explanation.waiting) if explanation.position else None,
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


_Document = TypeVar("_Document", bound=JobDocument)


def with_older(document: _Document, older: Sequence[JobView]) -> _Document:
    document.older = [
        OlderDocument(str(job.id), job.project, _place(job), job.state)
        for job in (view.job for view in older)
    ]
    return document


def _place(job: Job) -> str:
    match job.dialect:
        case "tia":
            return f"on {job.cluster}"
        case "vertex":
            return f"in {job.scope.rpartition(':')[2]}"
        case _:
            return ""


def _job_fields(job: Job, replicas: tuple[Replica, ...]) -> dict[str, Any]:
    return {
        "id": str(job.id),
        "uuid": to_uuid(job.id),
        "project": job.project,
        "dialect": job.dialect,
        "cluster": job.cluster,
        "place": _place(job),
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
