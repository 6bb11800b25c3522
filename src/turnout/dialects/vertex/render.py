"""Jobs as Vertex shows them."""

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
from turnout.dialects.vertex.names import JobName
from turnout.dialects.vertex.times import spell_time
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
"""For all but gangs that are being ended without a cancel: see `state`."""

REASONS: dict[Reason, str] = {
    Reason.SUCCEEDED: INTERNAL,
    Reason.PROGRAM_FAILED: INVALID_ARGUMENT,
    Reason.PROGRAM_NOT_FOUND: INVALID_ARGUMENT,
    Reason.KILLED: INVALID_ARGUMENT,
    Reason.OUT_OF_MEMORY: RESOURCE_EXHAUSTED,
    Reason.TIME_LIMIT: DEADLINE_EXCEEDED,
    Reason.STOPPED: CANCELLED,
    Reason.PREEMPTED: RESOURCE_EXHAUSTED,
    Reason.NODE_LOST: INTERNAL,
    Reason.STAGING_FAILED: INTERNAL,
    Reason.REFUSED: INTERNAL,
    Reason.HUNG: INTERNAL,
    Reason.WAITED: RESOURCE_EXHAUSTED,
}
"""The code of `error` for each way to end."""

_SHORT_OF_RESOURCES = frozenset({Reason.PREEMPTED, Reason.WAITED})
_LONGEST_TAIL = 4000


def job(view: JobView, *, tail: str = "", web_access_uris: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The resource. `tail` is the end of the log of the replica that `decider` names, shown if the job failed."""
    row = view.job
    location = location_of(row)
    kept: dict[str, Any] = msgspec.json.decode(view.document)
    shown: dict[str, Any] = {
        "name": str(JobName(row.project, location, row.id)),
        "displayName": kept.pop("displayName"),
        "jobSpec": kept.pop("jobSpec"),
        "state": state(row).name,
    } | _times(row)
    if row.state in (State.FAILED, State.STOPPED):
        shown["error"] = error(view, tail)
    shown |= kept
    if web_access_uris:
        shown["webAccessUris"] = dict(web_access_uris)
    return shown


def tuning_job(view: JobView) -> dict[str, Any]:
    """The resource without its trials."""
    row = view.job
    kept: dict[str, Any] = msgspec.json.decode(view.document)
    shown: dict[str, Any] = {"name": tuning_name(row)} | kept | {"state": state(row).name} | _times(row)
    if row.state in (State.FAILED, State.STOPPED):
        shown["error"] = error(view)
    return shown


def tuning_name(row: Job) -> str:
    return f"projects/{row.project}/locations/{location_of(row)}/hyperparameterTuningJobs/{row.id}"


def locked(view: JobView, name: str = "") -> dict[str, Any]:
    """What can still be told in a list of a job whose key is gone."""
    row = view.job
    return {
        "name": name or str(JobName(row.project, location_of(row), row.id)),
        "displayName": row.name,
        "state": state(row).name,
        **_times(row),
        "error": {"code": CODES[FAILED_PRECONDITION].number, "message": view.locked},
    }


def state(row: Job) -> JobState:
    """JOB_STATE_CANCELLING leads to an end, so it is not for one that is preempted or starts over, nor for one whose
    replicas are ended because one has failed: that one still runs.
    """
    if row.state is not State.STOPPING or row.reason is Reason.STOPPED:
        return STATES[row.state]
    return JobState.JOB_STATE_PENDING if row.started is None else JobState.JOB_STATE_RUNNING


def location_of(row: Job) -> str:
    """Of any kind: `vertex:us-central1`, or for a trial of job 1 `trial:1:us-central1`."""
    return row.scope.rpartition(":")[2]


def error(view: JobView, tail: str = "") -> dict[str, Any]:
    """As google.rpc.Status. Of a job that failed or was cancelled."""
    row = view.job
    reason = row.reason or Reason.NODE_LOST
    message = _message(row, reason, decider(view.replicas))
    if reason not in (Reason.STOPPED, Reason.WAITED) and tail.strip():
        message = f"{message}\n{tail[-_LONGEST_TAIL:].strip()}"
    return {"code": CODES[REASONS[reason]].number, "message": message}


def decider(replicas: Sequence[Replica]) -> Replica | None:
    """The one that failed first: its end was the job's."""
    failed = [replica for replica in replicas if replica.state is ReplicaState.FAILED]
    return min(failed, key=lambda replica: (replica.ended or 0, replica.role, replica.index), default=None)


def _times(row: Job) -> dict[str, str]:
    named = {
        "createTime": row.created,
        "startTime": row.started,
        "endTime": row.ended,
        "updateTime": row.updated,
    }
    return {name: spell_time(at) for name, at in named.items() if at is not None}


def _message(row: Job, reason: Reason, replica: Replica | None) -> str:
    if reason is Reason.STOPPED:
        return f"CANCELED: {row.message}" if row.message else "CANCELED"
    if reason in _SHORT_OF_RESOURCES:
        return (
            f"Resources are insufficient in region: {location_of(row)}. "
            f"Try a different region or use a different accelerator. {_sentence(row.message)}"
        ).strip()
    if reason is Reason.OUT_OF_MEMORY and replica:
        return f"The replica {replica.name} ran out of memory and exited with a non-zero status of {status(replica)}."
    if reason in (Reason.PROGRAM_FAILED, Reason.KILLED) and replica:
        return (
            f"The replica {replica.name} exited with a non-zero status of {status(replica)}. "
            f"Termination reason: {_termination(replica)}."
        )
    if REASONS[reason] == INTERNAL:
        return f"Internal error occurred for the current attempt: {_sentence(row.message or reason)}"
    return _sentence(row.message or reason)


def status(replica: Replica) -> int:
    """128 + n for signal n, as a container's exit code is."""
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
