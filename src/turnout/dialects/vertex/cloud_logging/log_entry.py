"""Log lines and events of a job as entries of Cloud Logging."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from turnout.dialects.vertex import render
from turnout.dialects.vertex.cloud_logging.log_filter import SEVERITIES
from turnout.dialects.vertex.protobuf.times import spell_time
from turnout.job import Event, EventKind, Job, Replica, ReplicaState, State
from turnout.service import JobView, Line

SERVICE = "service"
"""The task_name of entries that the service writes."""
RESOURCE = "ml_job"
MAX_LINE = 256 << 10
"""Characters of a line; the rest is cut."""

_STREAMS = ("INFO", "ERROR")
_EVENTS: dict[EventKind, tuple[str, str]] = {
    EventKind.CREATED: ("INFO", "Waiting for job to be provisioned."),
    EventKind.NOTE: ("NOTICE", "{message}"),
    EventKind.IMAGE: ("INFO", "{message}"),
    EventKind.PLACED: ("INFO", "Job is preparing: {message}"),
    EventKind.STARTED: ("INFO", "Training program started: {message}"),
    EventKind.STOPPING: ("INFO", "Tearing down training program: {message}"),
    EventKind.SAVED: ("INFO", "{message}"),
    EventKind.RETRIED: ("WARNING", "Job is restarted: {message}"),
    EventKind.RESTARTED: ("WARNING", "{message}"),
    EventKind.TRIMMED: ("WARNING", "{message}"),
    EventKind.PREEMPTED: ("WARNING", "Job is preempted: {message}"),
    EventKind.CHANGED: ("NOTICE", "{message}"),
    EventKind.HUNG: ("ERROR", "{message}"),
    EventKind.ENDED: ("INFO", "Finished tearing down training program."),
}
_ENDS: dict[State, tuple[str, str]] = {
    State.SUCCEEDED: ("INFO", "Job completed successfully."),
    State.FAILED: ("ERROR", "Job failed."),
    State.STOPPED: ("INFO", "Job is cancelled."),
}


class Entry(NamedTuple):
    at: int
    id: str
    """Sorts entries of the same time."""
    task: str
    severity: str
    text: str
    payload: dict[str, Any] | None = None
    """For a line that is a JSON object."""

    @property
    def position(self) -> tuple[int, str]:
        return self.at, self.id

    def document(self, job: Job) -> dict[str, Any]:
        at = spell_time(self.at)
        document: dict[str, Any] = {
            "insertId": self.id,
            "logName": f"projects/{job.project}/logs/{quote(self.task, '')}",
            "receiveTimestamp": at,
            "resource": {
                "type": RESOURCE,
                "labels": {"job_id": str(job.id), "project_id": job.project, "task_name": self.task},
            },
            "severity": self.severity,
            "timestamp": at,
        }
        if self.payload is None:
            return document | {"textPayload": self.text}
        return document | {"jsonPayload": self.payload}


def line_entry(line: Line) -> Entry:
    text, severity, payload = line.text[:MAX_LINE], _STREAMS[line.stream], None
    if text.startswith("{") and text.rstrip().endswith("}"):
        severity, payload = _parse_payload(text, severity)
    number = f"{line.attempt:06d}{line.replica.role}{line.replica.index:06d}{line.stream}{line.offset:016x}"
    return Entry(line.at, number, str(line.replica), severity, text, payload)


def service_entries(view: JobView, events: Sequence[Event]) -> list[Entry]:
    """The entries that the service writes about a job, ordered by time."""
    entries = [
        Entry(replica.ended, "", str(replica.name), "INFO", text)
        for replica in view.replicas
        if replica.ended is not None and (text := _completed(replica))
    ]
    entries += [
        Entry(event.at, "", SERVICE, severity, text)
        for event in events
        for severity, text in _event_texts(view, event)
    ]
    entries.sort(key=lambda entry: entry.at)
    # Sorted after lines of the same time.
    return [entry._replace(id=f"~{number:06d}") for number, entry in enumerate(entries)]


def _event_texts(view: JobView, event: Event) -> Iterator[tuple[str, str]]:
    if event.kind not in _EVENTS:
        return
    severity, text = _EVENTS[event.kind]
    yield severity, text.format(message=event.message)
    if event.kind is EventKind.ENDED and view.job.state in _ENDS:
        yield _ENDS[view.job.state]
        if view.job.state is State.FAILED:
            yield "ERROR", render.error(view)["message"]
        elif view.job.state is State.SUCCEEDED and view.job.message:
            yield "INFO", view.job.message


def _completed(replica: Replica) -> str:
    reasons = {
        ReplicaState.SUCCEEDED: "SUCCEEDED",
        ReplicaState.FAILED: "FAILED",
        ReplicaState.STOPPED: "CANCELLED",
    }
    if replica.state not in reasons:
        return ""
    return (
        f"Task completed. Exit code ({render.exit_status(replica)}). Exit reason ({reasons[replica.state]})"
    )


def _parse_payload(text: str, severity: str) -> tuple[str, dict[str, Any] | None]:
    """The severity in the object, and the object without it; None if the line is not a JSON object."""
    try:
        payload = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return severity, None
    if not isinstance(payload, dict):
        return severity, None
    named = payload.get("severity")
    if isinstance(named, str) and named.upper() in SEVERITIES:
        return payload.pop("severity").upper(), payload
    return severity, payload
