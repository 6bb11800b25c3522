"""The stages of each attempt: scheduling, preparing, running, end."""

from collections.abc import Iterator
from typing import NamedTuple

from turnout.dialects.modelarts import events
from turnout.dialects.modelarts.events import Happening
from turnout.dialects.modelarts.history import History, Spell
from turnout.dialects.modelarts.messages import Text, iso, messages
from turnout.job import to_uuid

Document = dict[str, object]


class _Stage(NamedTuple):
    name: str
    text: Text
    start: int
    end: int | None
    happenings: list[Happening]
    detail: str = ""


_NAMES = ("scheduling", "preparing", "running", "end")


def render(history: History) -> Document:
    """Only stages that were reached; the one that goes on has no end yet."""
    job_id = to_uuid(history.view.job.id)
    records = [
        {"record_order": spell.number, "stages": [_show(job_id, stage) for stage in _stages(spell)]}
        for spell in history.spells()
    ]
    return {"total_count": len(records), "running_records": records}


def _stages(spell: Spell) -> Iterator[_Stage]:
    starts = [events.task_start(one, one.started) for one in spell.replicas if one.started is not None]
    ends = [events.task_end(one, one.ended) for one in spell.replicas if one.ended is not None]
    yield _stage("scheduling", spell.since, spell.placed or spell.ended, [])
    if spell.placed is not None:
        yield _stage("preparing", spell.placed, spell.started or spell.ended, [])
    if spell.started is not None:
        yield _stage("running", spell.started, spell.ended, starts)
    if spell.ended is not None:
        stage = _stage("end", spell.ended, spell.ended, ends)
        yield stage._replace(detail=" ".join((spell.message or str(spell.reason)).split()).rstrip("."))


def _stage(name: str, start: int, end: int | None, happenings: list[Happening]) -> _Stage:
    stage = messages().stages[name]
    return _Stage(name, stage if end is None else stage.done, start, end, happenings)


def _show(job_id: str, stage: _Stage) -> Document:
    return {
        "job_id": job_id,
        "name": stage.name,
        "en_message": stage.text.say("en", detail=stage.detail),
        "zh_message": stage.text.say("zh", detail=stage.detail),
        "start_time": iso(stage.start),
        "end_time": "" if stage.end is None else iso(stage.end),
        "stage_order": _NAMES.index(stage.name) + 1,
        "sub_stages": [_show_part(happening) for happening in stage.happenings],
    }


def _show_part(happening: Happening) -> Document:
    return {
        "name": happening.values["task"],
        "en_message": events.say(happening, "en"),
        "zh_message": events.say(happening, "zh"),
        "create_time": iso(happening.at),
    }
