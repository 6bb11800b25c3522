"""The events of a job as ModelArts shows them, from our events, its replicas and its earlier attempts."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from turnout.dialects.modelarts import fields, times
from turnout.dialects.modelarts.errors import BAD_EVENT_QUERY
from turnout.dialects.modelarts.observe.history import AttemptTimes, History
from turnout.dialects.modelarts.observe.messages import Language, hours, messages
from turnout.dialects.modelarts.times import iso
from turnout.errors import Invalid
from turnout.job import EventKind, Reason, Replica, ReplicaState, State
from turnout.service.ends import one_line

LEVELS = ("Info", "Warning", "Error")
SOURCES = ("K8S", "Job", "Task")
DEFAULT_LIMIT, MAX_LIMIT = 50, 100
MAX_PATTERN = 256
ALONE = "runs alone"
"""The message of a placement contains it if the job has the whole machine."""
_MAX_OFFSET = 1 << 31
_SECOND = 1_000_000_000

Document = dict[str, object]


class JobEvent(NamedTuple):
    at: int
    kind: str
    """A key of `events` in messages.toml."""
    values: dict[str, str]


class EventQuery(NamedTuple):
    offset: int
    """The number of the page, from 0."""
    limit: int
    descending: bool
    start: int | None
    end: int | None
    level: str
    pattern: str
    source: str


def parse_query(query: Mapping[str, str]) -> EventQuery:
    start, end = _time(query, "start_time"), _time(query, "end_time")
    if (start is None) != (end is None):
        missing = "end_time" if end is None else "start_time"
        raise _invalid(missing, "is missing: set both start_time and end_time")
    if start is not None and end is not None and start > end:
        raise _invalid("start_time", "must not be later than end_time")
    pattern = query.get("pattern", "")
    if len(pattern) > MAX_PATTERN:
        raise _invalid("pattern", f"has {len(pattern)} characters; at most {MAX_PATTERN} are allowed")
    return EventQuery(
        offset=fields.number(query, "offset", 0, 0, _MAX_OFFSET, BAD_EVENT_QUERY),
        limit=fields.number(query, "limit", DEFAULT_LIMIT, 1, MAX_LIMIT, BAD_EVENT_QUERY),
        descending=_one_of(query, "order", ("asc", "desc")) != "asc",
        start=start,
        end=end,
        level=_one_of(query, "level", LEVELS),
        pattern=pattern,
        source=_one_of(query, "source", SOURCES),
    )


def render(history: History, query: EventQuery, language: Language, now: int) -> Document:
    """One page of the events that match, and the number of all that match."""
    found = [
        rendered
        for event in timeline(history)
        if _in_window(event.at, query) and _matches(rendered := _render_event(event, language), query)
    ]
    if query.descending:
        found.reverse()
    first = query.offset * query.limit
    return {
        "total": len(found),
        "limit": query.limit,
        "offset": query.offset,
        "order": "desc" if query.descending else "asc",
        "start_time": iso(history.view.job.created if query.start is None else query.start),
        "end_time": iso(now if query.end is None else query.end),
        "events": found[first : first + query.limit],
    }


def timeline(history: History) -> list[JobEvent]:
    """All events in the order of time."""
    events = [*_of_job(history), *_of_queue(history), *_of_tasks(history)]
    events.sort(key=lambda event: (event.at, _ORDER.index(event.kind)))
    return [item for event in events for item in (event, *_notifications(history, event))]


def task_start(replica: Replica, started: int) -> JobEvent:
    return JobEvent(started, "task_started", {"task": str(replica.name)})


def task_end(replica: Replica, ended: int) -> JobEvent:
    began = ended if replica.started is None else replica.started
    code = replica.exit_code if replica.signal is None else 128 + replica.signal
    message = one_line(replica.message)
    values = {
        "task": str(replica.name),
        "seconds": f"{max(0, ended - began) / _SECOND:.3f}",
        "code": str(code),
        "detail": f" It {message}." if message and message != f"exited with code {code}" else "",
    }
    return JobEvent(ended, _task_kind(replica, code), values)


def render_text(event: JobEvent, language: Language) -> str:
    values = event.values
    if "hours" in values:
        values = {"hours": hours(int(values["hours"]), language)}
    return messages().events[event.kind].text(language, **values)


def categories(language: Language) -> Document:
    """The categories of events for which users can request notifications."""
    listed = [
        {
            "id": name,
            "name": category.text(language),
            "description": category.description.text(language),
            "notification": True,
        }
        for name, category in messages().categories.items()
    ]
    return {"event-categories": listed}


_ORDER = (
    "created",
    "note",
    "placed",
    "running",
    "task_started",
    "task_succeeded",
    "task_failed",
    "task_lost",
    "task_never_ran",
    "hanged",
    "preempted",
    "stopping",
    "task_stopped",
    "trimmed",
    "changed",
    "saved",
    "restarted",
    "queuing",
    "completed",
    "failed",
    "stopped",
    "auto_stopped",
    "deleted",
)
"""The order of events with the same time."""

_BY_KIND = {
    EventKind.CREATED: "created",
    EventKind.NOTE: "note",
    EventKind.IMAGE: "note",
    EventKind.PLACED: "placed",
    EventKind.STARTED: "running",
    EventKind.SAVED: "saved",
    EventKind.PREEMPTED: "preempted",
    EventKind.TRIMMED: "trimmed",
    EventKind.DELETED: "deleted",
    EventKind.CHANGED: "changed",
    EventKind.HUNG: "hanged",
}
"""Events that depend on the kind alone."""

_ENDS = {State.SUCCEEDED: "completed", State.FAILED: "failed", State.STOPPED: "stopped"}


def _of_job(history: History) -> Iterator[JobEvent]:
    attempts = history.attempts()
    number = 0
    for recorded in history.events:
        number += recorded.kind is EventKind.PLACED
        attempt = attempts[max(0, number - 1)]
        kind = _BY_KIND.get(recorded.kind) or _by_reason(history, recorded.kind, attempt.reason)
        if kind == "placed":
            yield JobEvent(recorded.at, kind, {"detail": _placement(attempt, recorded.message)})
        elif kind:
            yield JobEvent(recorded.at, kind, _values(history, kind, recorded.message))


def _placement(attempt: AttemptTimes, message: str) -> str:
    """`2 tasks, attempt 1`, and whether the job runs alone. The recorded message has no words of ModelArts."""
    count = len(attempt.replicas)
    text = f"{count} {'task' if count == 1 else 'tasks'}, attempt {attempt.number}"
    if ALONE in message:
        text += "; the job needs more than the pool has, so it takes all of it and runs alone"
    return text


def _by_reason(history: History, kind: EventKind, reason: Reason | None) -> str:
    """The kind of an event that depends on the reason. Empty if another event already reports it."""
    job = history.view.job
    if kind is EventKind.ENDED:
        return "auto_stopped" if job.reason is Reason.TIME_LIMIT else _ENDS.get(job.state, "")
    if reason is Reason.PREEMPTED:
        return ""
    if kind is EventKind.STOPPING:
        return "stopping"
    return "restarted"


def _values(history: History, kind: str, message: str) -> dict[str, str]:
    if kind == "auto_stopped":
        stop = _stored(history.view.document).spec.auto_stop
        return {"hours": str(stop.duration if stop else 0)}
    return {"detail": one_line(message)}


def _of_queue(history: History) -> Iterator[JobEvent]:
    """An event for each wait in the queue. A job that is placed at once does not wait."""
    for attempt in history.attempts():
        if attempt.placed is None or attempt.placed > attempt.since:
            yield JobEvent(attempt.since, "queuing", {})


def _of_tasks(history: History) -> Iterator[JobEvent]:
    for replicas in history.replicas:
        for replica in replicas:
            if replica.started is not None:
                yield task_start(replica, replica.started)
            if replica.ended is not None:
                yield task_end(replica, replica.ended)


def _task_kind(replica: Replica, code: int | None) -> str:
    if replica.state is ReplicaState.SUCCEEDED:
        return "task_succeeded"
    if replica.state is ReplicaState.STOPPED:
        return "task_stopped"
    if replica.started is None:
        return "task_never_ran"
    return "task_lost" if code is None else "task_failed"


def _notifications(history: History, event: JobEvent) -> Iterator[JobEvent]:
    category = messages().events[event.kind].notification
    requested = _stored(history.view.document).spec.notification
    if category and requested and category in (requested.events or ()):
        yield JobEvent(event.at, "notified", {"event": category, "topic": requested.topic_urn or "-"})


def _render_event(event: JobEvent, language: Language) -> dict[str, str]:
    kind = messages().events[event.kind]
    return {
        "time": iso(event.at),
        "level": kind.level,
        "message": render_text(event, language),
        "source": kind.source,
    }


def _in_window(at: int, query: EventQuery) -> bool:
    return (query.start is None or query.start <= at) and (query.end is None or at <= query.end)


def _matches(rendered: dict[str, str], query: EventQuery) -> bool:
    return (
        query.level in ("", rendered["level"])
        and query.source in ("", rendered["source"])
        and query.pattern in rendered["message"]
    )


class _AutoStop(msgspec.Struct):
    duration: int = 0


class _Notification(msgspec.Struct):
    topic_urn: str | None = None
    events: list[str] | None = None


class _Spec(msgspec.Struct):
    auto_stop: _AutoStop | None = None
    notification: _Notification | None = None


class _StoredJob(msgspec.Struct):
    """The parts of a stored document that events need."""

    spec: _Spec = msgspec.field(default_factory=_Spec)


_stored = msgspec.json.Decoder(_StoredJob, strict=False).decode


def _one_of(query: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    """Ignores the case, because the reference mixes upper and lower case."""
    text = query.get(name, "").strip()
    found = next((choice for choice in known if choice.casefold() == text.casefold()), "")
    if text and not found:
        raise _invalid(name, f"must be one of {', '.join(known)}")
    return found


def _time(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "").strip()
    if not text:
        return None
    at = times.parse(text)
    if at is None:
        raise _invalid(name, f"must be a time, {times.FORMS}")
    return at


def _invalid(field: str, why: str) -> Invalid:
    return Invalid(f"Bad request: {field} {why}.", field=field, code=BAD_EVENT_QUERY)
