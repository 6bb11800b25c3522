"""Jobs as resources of Vertex."""

import signal
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from turnout.dialects.vertex.errors import (
    CANCELLED,
    CODES,
    DEADLINE_EXCEEDED,
    FAILED_PRECONDITION,
    INTERNAL,
    INVALID_ARGUMENT,
    RESOURCE_EXHAUSTED,
)
from turnout.dialects.vertex.pipelines import backing
from turnout.dialects.vertex.protobuf.times import spell_time
from turnout.dialects.vertex.resource_names import JobName
from turnout.dialects.vertex.wire import JobState
from turnout.job import Job, Reason, Replica, ReplicaState, State
from turnout.service import JobView

STATES: dict[State, JobState] = {
    State.QUEUED: JobState.JOB_STATE_QUEUED,
    State.PREPARING: JobState.JOB_STATE_PENDING,
    State.RUNNING: JobState.JOB_STATE_RUNNING,
    State.STOPPING: JobState.JOB_STATE_CANCELLING,
    State.SUCCEEDED: JobState.JOB_STATE_SUCCEEDED,
    State.FAILED: JobState.JOB_STATE_FAILED,
    State.STOPPED: JobState.JOB_STATE_CANCELLED,
}
"""Except for jobs that stop without a cancel: see `state`."""

REASONS: dict[Reason, str] = {
    Reason.SUCCEEDED: INTERNAL,
    Reason.PROGRAM_FAILED: INVALID_ARGUMENT,
    Reason.PROGRAM_NOT_FOUND: INVALID_ARGUMENT,
    Reason.KILLED: INVALID_ARGUMENT,
    Reason.OUT_OF_MEMORY: RESOURCE_EXHAUSTED,
    Reason.TIME_LIMIT: DEADLINE_EXCEEDED,
    Reason.DISK_LIMIT: RESOURCE_EXHAUSTED,
    Reason.STOPPED: CANCELLED,
    Reason.PREEMPTED: RESOURCE_EXHAUSTED,
    Reason.NODE_LOST: INTERNAL,
    Reason.STAGING_FAILED: INTERNAL,
    Reason.REFUSED: INTERNAL,
    Reason.HUNG: INTERNAL,
    Reason.WAITED: RESOURCE_EXHAUSTED,
}
"""The code of `error` for each end reason."""

_SHORT_OF_RESOURCES = frozenset({Reason.PREEMPTED, Reason.WAITED})
_MAX_TAIL = 4000


def custom_job(
    view: JobView, *, tail: str = "", web_access_uris: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The resource. `tail` is the end of the log of the replica that failed first; it is shown if the job failed."""
    job = view.job
    location = location_of(job)
    document = document_of(view)
    resource: dict[str, Any] = {
        "name": str(JobName(job.project, location, job.id)),
        "displayName": document.pop("displayName"),
        "jobSpec": document.pop("jobSpec"),
        "state": state(job).name,
    } | times(job)
    if job.state in (State.FAILED, State.STOPPED):
        resource["error"] = error(view, tail)
    resource |= document
    if web_access_uris:
        resource["webAccessUris"] = dict(web_access_uris)
    return resource


def tuning_job(view: JobView) -> dict[str, Any]:
    """The resource without its trials."""
    job = view.job
    resource: dict[str, Any] = (
        {"name": tuning_name(job)} | document_of(view) | {"state": state(job).name} | times(job)
    )
    if job.state in (State.FAILED, State.STOPPED):
        resource["error"] = error(view)
    return resource


def document_of(view: JobView) -> dict[str, Any]:
    """The document of a custom job or of a tuning job, also if the request was for a training pipeline.

    Raises WrongState if the encryption key is missing.
    """
    document: dict[str, Any] = msgspec.json.decode(view.document)
    return backing.document(document) if backing.is_pipeline(document) else document


def tuning_name(job: Job) -> str:
    return f"projects/{job.project}/locations/{location_of(job)}/hyperparameterTuningJobs/{job.id}"


def locked(view: JobView, name: str = "") -> dict[str, Any]:
    """The item of a list for a job whose encryption key is missing.

    Only a job that failed or was cancelled has an `error`, because clients consider a job with an error to have failed.
    """
    job = view.job
    resource: dict[str, Any] = {
        "name": name or str(JobName(job.project, location_of(job), job.id)),
        "displayName": job.name,
        "state": state(job).name,
        **times(job),
    }
    if job.state in (State.FAILED, State.STOPPED):
        resource["error"] = {"code": CODES[FAILED_PRECONDITION].number, "message": view.locked}
    return resource


def state(job: Job) -> JobState:
    """JOB_STATE_CANCELLING is only for jobs that are cancelled. A job that is preempted or restarted, or whose replicas
    stop because one has failed, still shows as running.
    """
    if job.state is not State.STOPPING or job.reason is Reason.STOPPED:
        return STATES[job.state]
    return JobState.JOB_STATE_PENDING if job.started is None else JobState.JOB_STATE_RUNNING


def location_of(job: Job) -> str:
    """The last part of the scope: `vertex:us-central1`, or `trial:1:us-central1` for a trial of job 1."""
    return job.scope.rpartition(":")[2]


def error(view: JobView, tail: str = "") -> dict[str, Any]:
    """The google.rpc.Status of a job that failed or was cancelled."""
    job = view.job
    reason = job.reason or Reason.NODE_LOST
    message = _message(job, reason, first_failed(view.replicas))
    if reason not in (Reason.STOPPED, Reason.WAITED) and tail.strip():
        message = f"{message}\n{tail[-_MAX_TAIL:].strip()}"
    return {"code": CODES[REASONS[reason]].number, "message": message}


def insufficient(location: str, why: str) -> str:
    return (
        f"Resources are insufficient in region: {location}. "
        f"Try a different region or use a different accelerator. {_sentence(why)}"
    ).strip()


def first_failed(replicas: Sequence[Replica]) -> Replica | None:
    """The replica whose failure ended the job."""
    failed = [replica for replica in replicas if replica.state is ReplicaState.FAILED]
    return min(failed, key=lambda replica: (replica.ended or 0, replica.role, replica.index), default=None)


def times(job: Job) -> dict[str, str]:
    named = {
        "createTime": job.created,
        "startTime": job.started,
        "endTime": job.ended,
        "updateTime": job.updated,
    }
    return {name: spell_time(at) for name, at in named.items() if at is not None}


def _message(job: Job, reason: Reason, replica: Replica | None) -> str:
    if reason is Reason.STOPPED:
        return f"CANCELED: {job.message}" if job.message else "CANCELED"
    if reason in _SHORT_OF_RESOURCES:
        return insufficient(location_of(job), job.message)
    if reason is Reason.OUT_OF_MEMORY and replica:
        status = exit_status(replica)
        return f"The replica {replica.name} ran out of memory and exited with a non-zero status of {status}."
    if reason is Reason.DISK_LIMIT and replica:
        return f"The replica {replica.name} {_sentence(replica.message or 'ran out of disk space')}"
    if reason in (Reason.PROGRAM_FAILED, Reason.KILLED) and replica:
        return (
            f"The replica {replica.name} exited with a non-zero status of {exit_status(replica)}. "
            f"Termination reason: {_termination(replica)}."
        )
    if REASONS[reason] == INTERNAL:
        return f"Internal error occurred for the current attempt: {_sentence(job.message or reason)}"
    return _sentence(job.message or reason)


def exit_status(replica: Replica) -> int:
    """128 + n for signal n, like the exit code of a container."""
    if replica.signal is not None:
        return 128 + replica.signal
    return 137 if replica.exit_code is None else replica.exit_code


def _termination(replica: Replica) -> str:
    if replica.signal is None:
        return "Error"
    try:
        return signal.Signals(replica.signal).name
    except ValueError:
        return f"signal {replica.signal}"


def _sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."
