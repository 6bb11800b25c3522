"""What happened to a job, told as ModelArts tells it: from our events, its replicas and its earlier attempts."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from turnout.dialects.modelarts import times
from turnout.dialects.modelarts.history import History
from turnout.dialects.modelarts.messages import Language, hours, iso, messages
from turnout.errors import Invalid
from turnout.job import EventKind, Reason, Replica, ReplicaState, State

BAD_REQUEST = "ModelArts.50004000"
LEVELS = ("Info", "Warning", "Error")
SOURCES = ("K8S", "Job", "Task")
DEFAULT_LIMIT, LARGEST_LIMIT = 50, 100
LONGEST_PATTERN = 256
_LARGEST_OFFSET = 1 << 31
_SECOND = 1_000_000_000

Document = dict[str, object]


class Happening(NamedTuple):
    at: int
    kind: str
    """A key of the messages' events."""
    values: dict[str, str]


class Wanted(NamedTuple):
    offset: int
    """The page, from 0."""
    limit: int
    descending: bool
    start: int | None
    end: int | None
    level: str
    pattern: str
    source: str


def wanted(query: Mapping[str, str]) -> Wanted:
    """What a request's query string asks for."""
    start, end = _time(query, "start_time"), _time(query, "end_time")
    if (start is None) != (end is None):
        missing = "end_time" if end is None else "start_time"
        raise _wrong(missing, "is missing: start_time and end_time belong together")
    if start is not None and end is not None and start > end:
        raise _wrong("start_time", "is later than end_time")
    pattern = query.get("pattern", "")
    if len(pattern) > LONGEST_PATTERN:
        raise _wrong("pattern", f"has {len(pattern)} characters; at most {LONGEST_PATTERN} are allowed")
    return Wanted(
        offset=_number(query, "offset", 0, 0, _LARGEST_OFFSET),
        limit=_number(query, "limit", DEFAULT_LIMIT, 1, LARGEST_LIMIT),
        descending=_one_of(query, "order", ("asc", "desc")) != "asc",
        start=start,
        end=end,
        level=_one_of(query, "level", LEVELS),
        pattern=pattern,
        source=_one_of(query, "source", SOURCES),
    )


def render(history: History, asked: Wanted, language: Language, now: int) -> Document:
    """The answer: one page of the events that match, and how many match in all."""
    found = [
        shown
        for happening in story(history)
        if _in_window(happening.at, asked) and _matches(shown := _show(happening, language), asked)
    ]
    if asked.descending:
        found.reverse()
    first = asked.offset * asked.limit
    return {
        "total": len(found),
        "limit": asked.limit,
        "offset": asked.offset,
        "order": "desc" if asked.descending else "asc",
        "start_time": iso(history.view.job.created if asked.start is None else asked.start),
        "end_time": iso(now if asked.end is None else asked.end),
        "events": found[first : first + asked.limit],
    }


def story(history: History) -> list[Happening]:
    """Everything in the order of time."""
    told = [*_of_job(history), *_of_queue(history), *_of_tasks(history)]
    told.sort(key=lambda happening: (happening.at, _ORDER.index(happening.kind)))
    return [one for happening in told for one in (happening, *_notified(history, happening))]


def task_start(replica: Replica, started: int) -> Happening:
    return Happening(started, "task_started", {"task": str(replica.name)})


def task_end(replica: Replica, ended: int) -> Happening:
    began = ended if replica.started is None else replica.started
    code = replica.exit_code if replica.signal is None else 128 + replica.signal
    told = _one_line(replica.message)
    values = {
        "task": str(replica.name),
        "seconds": f"{max(0, ended - began) / _SECOND:.3f}",
        "code": str(code),
        "detail": f" It {told}." if told and told != f"exited with code {code}" else "",
    }
    return Happening(ended, _task_kind(replica, code), values)


def say(happening: Happening, language: Language) -> str:
    values = happening.values
    if "hours" in values:
        values = {"hours": hours(int(values["hours"]), language)}
    return messages().events[happening.kind].say(language, **values)


def categories(language: Language) -> Document:
    """What a user may ask to be notified of."""
    listed = [
        {
            "id": name,
            "name": category.say(language),
            "description": category.description.say(language),
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
"""Which comes first of those that happened at the same time."""

_PLAIN = {
    EventKind.CREATED: "created",
    EventKind.NOTE: "note",
    EventKind.PLACED: "placed",
    EventKind.STARTED: "running",
    EventKind.SAVED: "saved",
    EventKind.PREEMPTED: "preempted",
    EventKind.TRIMMED: "trimmed",
    EventKind.DELETED: "deleted",
    EventKind.CHANGED: "changed",
    EventKind.HUNG: "hanged",
}
"""Those whose kind says it all."""

_ENDS = {State.SUCCEEDED: "completed", State.FAILED: "failed", State.STOPPED: "stopped"}


def _of_job(history: History) -> Iterator[Happening]:
    reasons = [spell.reason for spell in history.spells()]
    attempt = 0
    for event in history.events:
        attempt += event.kind is EventKind.PLACED
        kind = _PLAIN.get(event.kind) or _by_reason(history, event.kind, reasons[max(0, attempt - 1)])
        if kind:
            yield Happening(event.at, kind, _values(history, kind, event.message))


def _by_reason(history: History, kind: EventKind, reason: Reason | None) -> str:
    """Empty: another event says it already."""
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
        stop = _kept(history.view.document).spec.auto_stop
        return {"hours": str(stop.duration if stop else 0)}
    return {"detail": _one_line(message)}


def _of_queue(history: History) -> Iterator[Happening]:
    """Where the job waited: not if it was placed in the same moment."""
    for spell in history.spells():
        if spell.placed is None or spell.placed > spell.since:
            yield Happening(spell.since, "queuing", {})


def _of_tasks(history: History) -> Iterator[Happening]:
    for replicas in history.attempts:
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


def _notified(history: History, happening: Happening) -> Iterator[Happening]:
    category = messages().events[happening.kind].notification
    asked = _kept(history.view.document).spec.notification
    if category and asked and category in (asked.events or ()):
        yield Happening(happening.at, "notified", {"event": category, "topic": asked.topic_urn or "-"})


def _show(happening: Happening, language: Language) -> dict[str, str]:
    kind = messages().events[happening.kind]
    return {
        "time": iso(happening.at),
        "level": kind.level,
        "message": say(happening, language),
        "source": kind.source,
    }


def _in_window(at: int, asked: Wanted) -> bool:
    return (asked.start is None or asked.start <= at) and (asked.end is None or at <= asked.end)


def _matches(shown: dict[str, str], asked: Wanted) -> bool:
    return (
        asked.level in ("", shown["level"])
        and asked.source in ("", shown["source"])
        and asked.pattern in shown["message"]
    )


class _AutoStop(msgspec.Struct):
    duration: int = 0


class _Notification(msgspec.Struct):
    topic_urn: str | None = None
    events: list[str] | None = None


class _Spec(msgspec.Struct):
    auto_stop: _AutoStop | None = None
    notification: _Notification | None = None


class _Kept(msgspec.Struct):
    """What a job's document says about its events."""

    spec: _Spec = msgspec.field(default_factory=_Spec)


_kept = msgspec.json.Decoder(_Kept, strict=False).decode


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")


def _number(query: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = query.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal() or len(text) > 12 or not least <= int(text) <= most:
        raise _wrong(name, f"must be an integer from {least} to {most}")
    return int(text)


def _one_of(query: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    """As it is spelt here: the cloud's own pages mix upper and lower case."""
    text = query.get(name, "").strip()
    found = next((one for one in known if one.casefold() == text.casefold()), "")
    if text and not found:
        raise _wrong(name, f"must be one of {', '.join(known)}")
    return found


def _time(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "").strip()
    if not text:
        return None
    at = times.parse(text)
    if at is None:
        raise _wrong(name, f"must be a time, {times.FORMS}")
    return at


def _wrong(field: str, why: str) -> Invalid:
    return Invalid(f"Bad request: {field} {why}.", field=field, code=BAD_REQUEST)
