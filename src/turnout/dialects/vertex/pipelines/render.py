"""Training pipelines as resources of Vertex."""

from collections.abc import Mapping
from typing import Any

import msgspec

from turnout.dialects.vertex import render
from turnout.dialects.vertex.errors import CODES, FAILED_PRECONDITION
from turnout.dialects.vertex.pipelines import backing
from turnout.dialects.vertex.pipelines.translate import FAILED, MODEL, NAME, PENDING, TASK
from turnout.dialects.vertex.pipelines.wire import PipelineState
from turnout.dialects.vertex.resource_names import JobName
from turnout.job import Job, State
from turnout.service import JobView

_METADATA = {backing.CUSTOM_TASK: "backingCustomJob", backing.TUNING_TASK: "backingHyperparameterTuningJob"}


def name(job: Job) -> str:
    return f"projects/{job.project}/locations/{render.location_of(job)}/trainingPipelines/{job.id}"


def state(job: Job, labels: Mapping[str, str]) -> PipelineState:
    """A pipeline whose job has succeeded still runs until its model is made."""
    if job.state is State.SUCCEEDED and labels.get(MODEL) == PENDING:
        return PipelineState.PIPELINE_STATE_RUNNING
    if job.state is State.SUCCEEDED and labels.get(MODEL) == FAILED:
        return PipelineState.PIPELINE_STATE_FAILED
    return PipelineState[render.state(job).name.replace("JOB_", "PIPELINE_", 1)]


def pipeline(view: JobView, labels: Mapping[str, str], tail: str = "") -> dict[str, Any]:
    """`tail` is the end of the log of the replica that failed first; it is shown if the job failed."""
    job = view.job
    shown = state(job, labels)
    document: dict[str, Any] = msgspec.json.decode(view.document)
    outcome = {key: document.pop(key) for key in ("error", "endTime") if key in document}
    times = render.times(job)
    if shown is PipelineState.PIPELINE_STATE_RUNNING:
        times.pop("endTime", None)
    resource = {"name": name(job)} | document | {"state": shown.name} | times | outcome
    resource["trainingTaskMetadata"] = _metadata(job, labels)
    if job.state in (State.FAILED, State.STOPPED):
        resource["error"] = render.error(view, tail)
    return resource


def locked(view: JobView, labels: Mapping[str, str]) -> dict[str, Any]:
    """The item of a list for a pipeline whose encryption key is missing."""
    job = view.job
    resource: dict[str, Any] = {
        "name": name(job),
        "displayName": labels[NAME],
        "trainingTaskDefinition": labels[TASK],
        "state": state(job, labels).name,
    } | render.times(job)
    if job.state in (State.FAILED, State.STOPPED):
        resource["error"] = {"code": CODES[FAILED_PRECONDITION].number, "message": view.locked}
    return resource


def _metadata(job: Job, labels: Mapping[str, str]) -> dict[str, str]:
    location = render.location_of(job)
    task = labels[TASK]
    backed = (
        str(JobName(job.project, location, job.id))
        if task == backing.CUSTOM_TASK
        else render.tuning_name(job)
    )
    return {_METADATA[task]: backed}
