"""The `filter` of a list of training pipelines as a Query."""

import re

from turnout.dialects.vertex.filter_grammar import Value, invalid
from turnout.dialects.vertex.job_filter import JobFilterParser, Operator, has_state, label_test
from turnout.dialects.vertex.pipelines.translate import FAILED, MODEL, NAME, PENDING, TASK
from turnout.dialects.vertex.pipelines.wire import PipelineState
from turnout.dialects.vertex.protobuf.field_path import quoted
from turnout.dialects.vertex.wire import JobState
from turnout.job import All, Any, Compare, Label, Not, Query, State

_DEFINITION = "training_task_definition"
_STORED = {"display_name": NAME, _DEFINITION: TASK}


def parse(text: str) -> Query:
    """Raises Invalid with the position of the error."""
    return _PipelineFilterParser(text).parse()


class _PipelineFilterParser(JobFilterParser):
    FIELDS = (*JobFilterParser.FIELDS, _DEFINITION)

    def compare(self, field: str, op: Operator, value: Value, at: int) -> Query:
        if field in _STORED:
            return label_test(_STORED[field], field, op, value, at)
        return _state(op, value, at) if field == "state" else super().compare(field, op, value, at)


def _state(op: Operator, value: Value, at: int) -> Query:
    if op not in ("=", "!="):
        raise invalid(at, f"state takes = and !=, not {op}")
    matching = _has_state(_pipeline_state(value))
    return matching if op == "=" else Not(matching)


def _has_state(wanted: PipelineState) -> Query:
    """The pipelines for which `render.state` returns this state."""
    of_job = has_state(JobState[wanted.name.replace("PIPELINE_", "JOB_", 1)])
    succeeded = Compare("state", "=", State.SUCCEEDED.value)
    pending, failed = Label(MODEL, "=", PENDING), Label(MODEL, "=", FAILED)
    match wanted:
        case PipelineState.PIPELINE_STATE_SUCCEEDED:
            return All(of_job, Not(pending), Not(failed))
        case PipelineState.PIPELINE_STATE_RUNNING:
            return Any(of_job, All(succeeded, pending))
        case PipelineState.PIPELINE_STATE_FAILED:
            return Any(of_job, All(succeeded, failed))
        case _:
            return of_job


def _pipeline_state(value: Value) -> PipelineState:
    text = value.text
    if text in PipelineState.__members__:
        return PipelineState[text]
    if re.fullmatch("[0-8]", text):
        return PipelineState(int(text))
    known = ", ".join(
        state.name for state in PipelineState if 0 < state < PipelineState.PIPELINE_STATE_PAUSED
    )
    raise invalid(value.at, f"{quoted(text)} is not a state; use one of {known}")
