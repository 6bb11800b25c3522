"""The messages of google.cloud.aiplatform.v1 that make up a training pipeline; see `wire`."""

# ruff: noqa: RUF012 (msgspec copies them)
from enum import IntEnum
from typing import ClassVar

from turnout.dialects.vertex.models.wire import Model
from turnout.dialects.vertex.tuning.wire import StudySpec
from turnout.dialects.vertex.wire import (
    CustomJobSpec,
    EncryptionSpec,
    Int32,
    Message,
    Status,
    Struct,
    Timestamp,
    Value,
)


class PipelineState(IntEnum):
    PIPELINE_STATE_UNSPECIFIED = 0
    PIPELINE_STATE_QUEUED = 1
    PIPELINE_STATE_PENDING = 2
    PIPELINE_STATE_RUNNING = 3
    PIPELINE_STATE_SUCCEEDED = 4
    PIPELINE_STATE_FAILED = 5
    PIPELINE_STATE_CANCELLING = 6
    PIPELINE_STATE_CANCELLED = 7
    PIPELINE_STATE_PAUSED = 8


class TrainingPipeline(Message):
    OUTPUT: ClassVar[frozenset[str]] = frozenset(
        {
            "name",
            "training_task_metadata",
            "state",
            "error",
            "create_time",
            "start_time",
            "end_time",
            "update_time",
        }
    )

    name: str = ""
    display_name: str = ""
    input_data_config: Struct | None = None
    training_task_definition: str = ""
    training_task_inputs: Value | None = None
    training_task_metadata: Value | None = None
    model_to_upload: Model | None = None
    model_id: str = ""
    parent_model: str = ""
    state: PipelineState = PipelineState.PIPELINE_STATE_UNSPECIFIED
    error: Status | None = None
    create_time: Timestamp | None = None
    start_time: Timestamp | None = None
    end_time: Timestamp | None = None
    update_time: Timestamp | None = None
    labels: dict[str, str] = {}
    encryption_spec: EncryptionSpec | None = None


class CustomTask(CustomJobSpec):
    """`trainingTaskInputs` of custom_task_1.0.0.yaml."""


class TuningTask(Message):
    """`trainingTaskInputs` of hyperparameter_tuning_task_1.0.0.yaml."""

    study_spec: StudySpec | None = None
    trial_job_spec: CustomJobSpec | None = None
    max_trial_count: Int32 = 0
    parallel_trial_count: Int32 = 0
    max_failed_trial_count: Int32 = 0
