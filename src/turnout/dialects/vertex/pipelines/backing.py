"""A training pipeline as the custom job or tuning job that runs it: the second document of one job. Pure."""

from typing import Any

from turnout.dialects.vertex.pipelines.wire import CustomTask, TuningTask
from turnout.dialects.vertex.protobuf import codec
from turnout.dialects.vertex.protobuf.codec import Decoded
from turnout.dialects.vertex.tuning.wire import HyperparameterTuningJob
from turnout.dialects.vertex.wire import CustomJob

CUSTOM_TASK = "gs://google-cloud-aiplatform/schema/trainingjob/definition/custom_task_1.0.0.yaml"
TUNING_TASK = (
    "gs://google-cloud-aiplatform/schema/trainingjob/definition/hyperparameter_tuning_task_1.0.0.yaml"
)
DEFINITIONS = (CUSTOM_TASK, TUNING_TASK)

_SUFFIXES = {CUSTOM_TASK: "-custom-job", TUNING_TASK: "-hyperparameter-tuning-job"}
_LONGEST_NAME = 128
_TASK = "trainingTaskDefinition"
_INPUTS = "trainingTaskInputs"
_ROOT = "training_pipeline"
_SHARED = ("labels", "encryptionSpec")


def is_pipeline(document: dict[str, Any]) -> bool:
    return _TASK in document


def display_name(name: str, definition: str) -> str:
    suffix = _SUFFIXES[definition]
    return name[: _LONGEST_NAME - len(suffix)] + suffix


def decode_task(inputs: Any, definition: str) -> Decoded[CustomTask] | Decoded[TuningTask]:
    """`trainingTaskInputs`. Raises Invalid."""
    if definition == CUSTOM_TASK:
        return codec.decode_value(inputs, CustomTask, _ROOT, _INPUTS)
    return codec.decode_value(inputs, TuningTask, _ROOT, _INPUTS)


def of_task(task: CustomTask | TuningTask) -> CustomJob | HyperparameterTuningJob:
    """The document of the job that a task describes, without the fields that the pipeline has itself."""
    if isinstance(task, CustomTask):
        return CustomJob(job_spec=task)
    return HyperparameterTuningJob(
        study_spec=task.study_spec,
        max_trial_count=task.max_trial_count,
        parallel_trial_count=task.parallel_trial_count,
        max_failed_trial_count=task.max_failed_trial_count,
        trial_job_spec=task.trial_job_spec,
    )


def document(pipeline: dict[str, Any]) -> dict[str, Any]:
    """The document of the job, from the stored document of the pipeline."""
    definition = pipeline[_TASK]
    task = decode_task(pipeline[_INPUTS], definition).message
    named = {"displayName": display_name(pipeline["displayName"], definition)}
    shared = {name: pipeline[name] for name in _SHARED if name in pipeline}
    return named | codec.encode(of_task(task)) | shared
