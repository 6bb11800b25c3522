"""The messages of google.cloud.aiplatform.v1 that make up a hyperparameter tuning job; see `wire`."""

# ruff: noqa: RUF012 (msgspec copies them)
from enum import IntEnum
from typing import ClassVar

from turnout.dialects.vertex.wire import (
    AnyMessage,
    CustomJobSpec,
    Duration,
    EncryptionSpec,
    Int32,
    Int64,
    JobState,
    Message,
    Status,
    Timestamp,
)


class StudyTimeConstraint(Message):
    ONEOFS: ClassVar[dict[str, tuple[str, ...]]] = {"constraint": ("max_duration", "end_time")}

    max_duration: Duration | None = None
    end_time: Timestamp | None = None


class StudySpec(Message):
    class MetricSpec(Message):
        class GoalType(IntEnum):
            GOAL_TYPE_UNSPECIFIED = 0
            MAXIMIZE = 1
            MINIMIZE = 2

        class SafetyMetricConfig(Message):
            safety_threshold: float = 0.0
            desired_min_safe_trials_fraction: float | None = None

        metric_id: str = ""
        goal: GoalType = GoalType.GOAL_TYPE_UNSPECIFIED
        safety_config: SafetyMetricConfig | None = None

    class ParameterSpec(Message):
        ONEOFS: ClassVar[dict[str, tuple[str, ...]]] = {
            "parameter_value_spec": (
                "double_value_spec",
                "integer_value_spec",
                "categorical_value_spec",
                "discrete_value_spec",
            )
        }

        class ScaleType(IntEnum):
            SCALE_TYPE_UNSPECIFIED = 0
            UNIT_LINEAR_SCALE = 1
            UNIT_LOG_SCALE = 2
            UNIT_REVERSE_LOG_SCALE = 3

        class DoubleValueSpec(Message):
            min_value: float = 0.0
            max_value: float = 0.0
            default_value: float | None = None

        class IntegerValueSpec(Message):
            min_value: Int64 = 0
            max_value: Int64 = 0
            default_value: Int64 | None = None

        class CategoricalValueSpec(Message):
            values: list[str] = []
            default_value: str | None = None

        class DiscreteValueSpec(Message):
            values: list[float] = []
            default_value: float | None = None

        class ConditionalParameterSpec(Message):
            ONEOFS: ClassVar[dict[str, tuple[str, ...]]] = {
                "parent_value_condition": (
                    "parent_discrete_values",
                    "parent_int_values",
                    "parent_categorical_values",
                )
            }

            class DiscreteValueCondition(Message):
                values: list[float] = []

            class IntValueCondition(Message):
                values: list[Int64] = []

            class CategoricalValueCondition(Message):
                values: list[str] = []

            parent_discrete_values: DiscreteValueCondition | None = None
            parent_int_values: IntValueCondition | None = None
            parent_categorical_values: CategoricalValueCondition | None = None
            parameter_spec: "StudySpec.ParameterSpec | None" = None

        double_value_spec: DoubleValueSpec | None = None
        integer_value_spec: IntegerValueSpec | None = None
        categorical_value_spec: CategoricalValueSpec | None = None
        discrete_value_spec: DiscreteValueSpec | None = None
        parameter_id: str = ""
        scale_type: ScaleType = ScaleType.SCALE_TYPE_UNSPECIFIED
        conditional_parameter_specs: list[ConditionalParameterSpec] = []

    class DecayCurveAutomatedStoppingSpec(Message):
        use_elapsed_duration: bool = False

    class MedianAutomatedStoppingSpec(Message):
        use_elapsed_duration: bool = False

    class ConvexAutomatedStoppingSpec(Message):
        max_step_count: Int64 = 0
        min_step_count: Int64 = 0
        min_measurement_count: Int64 = 0
        learning_rate_parameter_name: str = ""
        use_elapsed_duration: bool = False
        update_all_stopped_trials: bool | None = None

    class StudyStoppingConfig(Message):
        should_stop_asap: bool | None = None
        minimum_runtime_constraint: StudyTimeConstraint | None = None
        maximum_runtime_constraint: StudyTimeConstraint | None = None
        min_num_trials: Int32 | None = None
        max_num_trials: Int32 | None = None
        max_num_trials_no_progress: Int32 | None = None
        max_duration_no_progress: Duration | None = None

    class Algorithm(IntEnum):
        ALGORITHM_UNSPECIFIED = 0
        GRID_SEARCH = 2
        RANDOM_SEARCH = 3

    class ObservationNoise(IntEnum):
        OBSERVATION_NOISE_UNSPECIFIED = 0
        LOW = 1
        HIGH = 2

    class MeasurementSelectionType(IntEnum):
        MEASUREMENT_SELECTION_TYPE_UNSPECIFIED = 0
        LAST_MEASUREMENT = 1
        BEST_MEASUREMENT = 2

    ONEOFS: ClassVar[dict[str, tuple[str, ...]]] = {
        "automated_stopping_spec": (
            "decay_curve_stopping_spec",
            "median_automated_stopping_spec",
            "convex_automated_stopping_spec",
        )
    }

    decay_curve_stopping_spec: DecayCurveAutomatedStoppingSpec | None = None
    median_automated_stopping_spec: MedianAutomatedStoppingSpec | None = None
    convex_automated_stopping_spec: ConvexAutomatedStoppingSpec | None = None
    metrics: list[MetricSpec] = []
    parameters: list[ParameterSpec] = []
    algorithm: Algorithm = Algorithm.ALGORITHM_UNSPECIFIED
    observation_noise: ObservationNoise = ObservationNoise.OBSERVATION_NOISE_UNSPECIFIED
    measurement_selection_type: MeasurementSelectionType = (
        MeasurementSelectionType.MEASUREMENT_SELECTION_TYPE_UNSPECIFIED
    )
    study_stopping_config: StudyStoppingConfig | None = None


class Measurement(Message):
    class Metric(Message):
        metric_id: str = ""
        value: float = 0.0

    elapsed_duration: Duration | None = None
    step_count: Int64 = 0
    metrics: list[Metric] = []


class Trial(Message):
    class State(IntEnum):
        STATE_UNSPECIFIED = 0
        REQUESTED = 1
        ACTIVE = 2
        STOPPING = 3
        SUCCEEDED = 4
        INFEASIBLE = 5

    class Parameter(Message):
        parameter_id: str = ""
        value: AnyMessage | None = None
        """A number or a text: google.protobuf.Value."""

    name: str = ""
    id: str = ""
    state: State = State.STATE_UNSPECIFIED
    parameters: list[Parameter] = []
    final_measurement: Measurement | None = None
    measurements: list[Measurement] = []
    start_time: Timestamp | None = None
    end_time: Timestamp | None = None
    client_id: str = ""
    infeasible_reason: str = ""
    custom_job: str = ""
    web_access_uris: dict[str, str] = {}


class HyperparameterTuningJob(Message):
    OUTPUT: ClassVar[frozenset[str]] = frozenset(
        {
            "name",
            "trials",
            "state",
            "create_time",
            "start_time",
            "end_time",
            "update_time",
            "error",
            "satisfies_pzs",
            "satisfies_pzi",
        }
    )

    name: str = ""
    display_name: str = ""
    study_spec: StudySpec | None = None
    max_trial_count: Int32 = 0
    parallel_trial_count: Int32 = 0
    max_failed_trial_count: Int32 = 0
    trial_job_spec: CustomJobSpec | None = None
    trials: list[Trial] = []
    state: JobState = JobState.JOB_STATE_UNSPECIFIED
    create_time: Timestamp | None = None
    start_time: Timestamp | None = None
    end_time: Timestamp | None = None
    update_time: Timestamp | None = None
    error: Status | None = None
    labels: dict[str, str] = {}
    encryption_spec: EncryptionSpec | None = None
    satisfies_pzs: bool = False
    satisfies_pzi: bool = False
