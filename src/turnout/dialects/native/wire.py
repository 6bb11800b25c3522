"""The documents of the native API."""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from turnout.job import AuditLine, Event, Job, PastAttempt, Replica, Trial, host_name, to_uuid
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
    node: str
    restarts: int
    """How often it was restarted in place."""


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


class JobRow(msgspec.Struct, kw_only=True):
    """A job in a list."""

    id: str
    uuid: str
    project: str
    dialect: str
    cluster: str
    place: str
    """As in JobDocument."""
    name: str
    state: str
    priority: int
    owner: str
    """Who created it: the id of a key, `root`, or the local user; empty for jobs of older versions."""
    reason: str | None
    message: str
    created: int
    started: int | None
    ended: int | None
    attempt: int
    labels: dict[str, str]
    waits_for: str = ""
    """What a waiting job waits for, in a line; empty for others."""


class JobsDocument(msgspec.Struct):
    jobs: list[JobRow]
    next: str
    """The `cursor` of the next page; empty on the last page."""


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
    """Of the objective."""
    metrics: dict[str, float]
    created: int
    started: int | None
    ended: int | None
    message: str


class LastLines(msgspec.Struct):
    replica: str
    lines: list[str]


class CreatedDocument(JobDocument, kw_only=True):
    notes: tuple[str, ...]
    """What differs from what the request asks for, such as an image that the machine's Python stands for."""


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


class AttemptDocument(msgspec.Struct):
    """An attempt before the current one."""

    attempt: int
    started: int | None
    ended: int
    reason: str
    message: str
    replica: str
    """The replica that decided it."""
    exit_code: int | None


class AuditDocument(msgspec.Struct):
    number: int
    at: int
    who: str
    """The id of a key, `root`, or the local user of a service without authentication."""
    project: str
    peer: str
    """The address that the request came from."""
    api: str
    call: str
    job: str | None
    """The id of the job, if it is about one."""
    subject: str
    """The name of the job or of what else was changed."""
    status: int
    code: str
    """The API's error code; empty if the change was made."""


class AuditPage(msgspec.Struct):
    lines: list[AuditDocument]
    next: str
    """The `cursor` of the next page; empty on the last page."""


class JobDetails(ExplainDocument, kw_only=True):
    """Everything about a job that fits into one reply. `links` has the rest."""

    priority: int
    owner: str
    """As in JobRow."""
    labels: dict[str, str]
    attempts: list[AttemptDocument]
    audit: list[AuditDocument]
    """Who changed it: the newest lines of the audit trail, the oldest of them first."""
    spec: dict[str, Any] | None
    """What runs, in Turnout's words; None if it cannot be decrypted."""
    document: Any
    """The request that created the job, in the words of its API; None if it cannot be decrypted."""
    links: dict[str, str]


class ApiDocument(msgspec.Struct):
    """A job as a request of an API that creates it."""

    document: dict[str, Any]
    notes: tuple[str, ...]
    """What differs in a request of another API than the job's own."""


class SampleDocument(msgspec.Struct):
    """Average use since the last sample, in percent; None if there is nothing to measure."""

    at: int
    cpu: float | None
    memory: float | None
    gpu: float | None
    gpu_memory: float | None


class MeasurementDocument(msgspec.Struct):
    step: int
    at: int
    metrics: dict[str, float]


class LineDocument(msgspec.Struct):
    id: str
    """`<time>.<stream>.<replica>`: no other line of the job has it. JavaScript's numbers are too short for the time."""
    at: int
    attempt: int
    replica: str
    pod: str
    stream: str
    text: str


class LinesDocument(msgspec.Struct):
    """A page of a log."""

    lines: list[LineDocument]
    next: str
    """The `cursor` of the next page, also of lines that are yet to be printed."""
    over: bool
    """Whether there are no more lines at the moment."""


class ExtentDocument(msgspec.Struct):
    """The size of a log, and a place in it, as exact as a scroll bar needs it."""

    size: int
    """In bytes."""
    position: int
    """Bytes before the place."""
    at: str
    """The time of the place, in nanoseconds since 1970; for `since` or `until`."""


class BucketDocument(msgspec.Struct):
    name: str
    url: str
    """With a scheme that leads to it: `gs://data`."""
    created: int | None
    """None for a remote bucket."""
    store: str
    """The URL that the settings give a remote bucket; empty for an embedded one."""
    shared: bool
    """Whether other projects may use it too."""


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
    return LineDocument(
        f"{line.at}.{line.stream}.{line.replica}",
        line.at,
        line.attempt,
        str(line.replica),
        pod,
        ("stdout", "stderr")[line.stream],
        line.text,
    )


def job_document(job: Job, replicas: tuple[Replica, ...]) -> JobDocument:
    return JobDocument(**_job_fields(job, replicas))


def created_document(job: Job, replicas: tuple[Replica, ...], notes: tuple[str, ...]) -> CreatedDocument:
    return CreatedDocument(**_job_fields(job, replicas), notes=notes)


def job_row(job: Job, labels: dict[str, str]) -> JobRow:
    return JobRow(
        id=str(job.id),
        uuid=to_uuid(job.id),
        project=job.project,
        dialect=job.dialect,
        cluster=job.cluster,
        place=_place(job),
        name=job.name,
        state=job.state,
        priority=job.priority,
        owner=job.owner,
        reason=job.reason,
        message=job.message,
        created=job.created,
        started=job.started,
        ended=job.ended,
        attempt=job.attempt,
        labels=labels,
    )


def attempt_document(past: PastAttempt) -> AttemptDocument:
    return AttemptDocument(
        past.attempt, past.started, past.ended, past.reason, past.message, past.replica, past.code
    )


def audit_document(line: AuditLine) -> AuditDocument:
    fields: dict[str, Any] = msgspec.structs.asdict(line)
    fields["job"] = str(line.job) if line.job else None
    return AuditDocument(**fields)


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
        trials=[trial_document(trial) for trial in trials],
    )


def trial_document(trial: Trial) -> TrialDocument:
    return TrialDocument(
        trial.number + 1,
        trial.id,
        str(trial.child),
        trial.state,
        trial.parameters,
        trial.value,
        trial.metrics,
        trial.created,
        trial.started,
        trial.ended,
        trial.message,
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
                r.node,
                r.restarts,
            )
            for r in replicas
        ],
    }
