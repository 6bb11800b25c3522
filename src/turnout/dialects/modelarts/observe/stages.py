"""The stages of each attempt: scheduling, preparing, running, end."""

from collections.abc import Iterator
from typing import NamedTuple

from turnout.dialects.modelarts.observe import events
from turnout.dialects.modelarts.observe.events import JobEvent
from turnout.dialects.modelarts.observe.history import AttemptTimes, History
from turnout.dialects.modelarts.observe.messages import Text, messages
from turnout.dialects.modelarts.times import iso
from turnout.job import to_uuid

Document = dict[str, object]


class _Stage(NamedTuple):
    name: str
    text: Text
    start: int
    end: int | None
    task_events: list[JobEvent]
    detail: str = ""


_NAMES = ("scheduling", "preparing", "running", "end")


def render(history: History) -> Document:
    """Only stages that the job has reached. The current one has no end time."""
    job_id = to_uuid(history.view.job.id)
    records = [
        {
            "record_order": attempt.number,
            "stages": [_render_stage(job_id, stage) for stage in _stages(attempt)],
        }
        for attempt in history.attempts()
    ]
    return {"total_count": len(records), "running_records": records}


def _stages(attempt: AttemptTimes) -> Iterator[_Stage]:
    starts = [
        events.task_start(replica, replica.started)
        for replica in attempt.replicas
        if replica.started is not None
    ]
    ends = [
        events.task_end(replica, replica.ended) for replica in attempt.replicas if replica.ended is not None
    ]
    yield _stage("scheduling", attempt.since, attempt.placed or attempt.ended, [])
    if attempt.placed is not None:
        yield _stage("preparing", attempt.placed, attempt.started or attempt.ended, [])
    if attempt.started is not None:
        yield _stage("running", attempt.started, attempt.ended, starts)
    if attempt.ended is not None:
        stage = _stage("end", attempt.ended, attempt.ended, ends)
        yield stage._replace(detail=" ".join((attempt.message or str(attempt.reason)).split()).rstrip("."))


def _stage(name: str, start: int, end: int | None, task_events: list[JobEvent]) -> _Stage:
    stage = messages().stages[name]
    return _Stage(name, stage if end is None else stage.done, start, end, task_events)


def _render_stage(job_id: str, stage: _Stage) -> Document:
    return {
        "job_id": job_id,
        "name": stage.name,
        "en_message": stage.text.text("en", detail=stage.detail),
        "zh_message": stage.text.text("zh", detail=stage.detail),
        "start_time": iso(stage.start),
        "end_time": "" if stage.end is None else iso(stage.end),
        "stage_order": _NAMES.index(stage.name) + 1,
        "sub_stages": [_render_event(event) for event in stage.task_events],
    }


def _render_event(event: JobEvent) -> Document:
    return {
        "name": event.values["task"],
        "en_message": events.render_text(event, "en"),
        "zh_message": events.render_text(event, "zh"),
        "create_time": iso(event.at),
    }
