"""Checks a StudySpec and translates it to a Search."""

from collections.abc import Iterator
from typing import Literal

from turnout.dialects.vertex.protobuf.field_path import FieldPath, quoted
from turnout.dialects.vertex.tuning.wire import HyperparameterTuningJob, StudySpec
from turnout.errors import Invalid, Unsupported
from turnout.job import Search
from turnout.job.algorithms import LARGEST_GRID, check
from turnout.job.search import Algorithm, Condition, Metric, Parameter, Stopping, Value

MAX_TRIALS = LARGEST_GRID
MAX_PARALLEL = 1000
MAX_PARAMETERS = 1000
MAX_METRICS = 100

_Parameter = StudySpec.ParameterSpec
_Conditional = _Parameter.ConditionalParameterSpec
ALGORITHMS = {
    StudySpec.Algorithm.ALGORITHM_UNSPECIFIED: "default",
    StudySpec.Algorithm.GRID_SEARCH: "grid",
    StudySpec.Algorithm.RANDOM_SEARCH: "random",
}
_SCALES: dict[_Parameter.ScaleType, Literal["linear", "log", "reverse_log"]] = {
    _Parameter.ScaleType.SCALE_TYPE_UNSPECIFIED: "linear",
    _Parameter.ScaleType.UNIT_LINEAR_SCALE: "linear",
    _Parameter.ScaleType.UNIT_LOG_SCALE: "log",
    _Parameter.ScaleType.UNIT_REVERSE_LOG_SCALE: "reverse_log",
}


def to_search(job: HyperparameterTuningJob, path: FieldPath, notes: dict[str, None]) -> Search:
    """Raises Invalid, or Unsupported for fields that are not supported."""
    study = job.study_spec
    if study is None:
        raise (path / "studySpec").missing()
    _check_count(job.max_trial_count, MAX_TRIALS, path / "maxTrialCount")
    _check_count(job.parallel_trial_count, MAX_PARALLEL, path / "parallelTrialCount")
    if job.max_failed_trial_count < 0:
        raise (path / "maxFailedTrialCount").invalid(
            f"it must be at least 0, not {job.max_failed_trial_count}."
        )
    study_path = path / "studySpec"
    parameters = _parameters(study, study_path)
    found = Search(
        parameters=tuple(parameter for parameter, _ in parameters),
        metrics=tuple(_metrics(study, study_path / "metrics", notes)),
        algorithms=(Algorithm(ALGORITHMS[study.algorithm]),),
        max_trials=job.max_trial_count,
        parallel=job.parallel_trial_count,
        max_failed=job.max_failed_trial_count,
        stopping=_stopping(study, study_path),
        measurement="best"
        if study.measurement_selection_type is StudySpec.MeasurementSelectionType.BEST_MEASUREMENT
        else "last",
    )
    if study.observation_noise:
        notes["studySpec.observationNoise has no effect: the algorithm always allows for noise"] = None
    paths = {parameter.name: parameter_path for parameter, parameter_path in parameters}
    try:
        check(found)
    except Invalid as error:
        raise paths.get(error.field, study_path).invalid(f"{error.message}.") from None
    return found


def normalize(value: Value) -> Value:
    """A whole float as an integer, because programs parse it as one: `--layers=3`."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def _check_count(count: int, most: int, path: FieldPath) -> None:
    if not count:
        raise path.missing()
    if not 1 <= count <= most:
        raise path.invalid(f"it must be from 1 to {most}, not {count}.")


def _metrics(study: StudySpec, path: FieldPath, notes: dict[str, None]) -> Iterator[Metric]:
    if not study.metrics:
        raise path.missing()
    if len(study.metrics) > MAX_METRICS:
        raise path.invalid(f"there are {len(study.metrics)}; at most {MAX_METRICS} are allowed.")
    seen: set[str] = set()
    for index, metric in enumerate(study.metrics):
        metric_path = path / index
        if not metric.metric_id:
            raise (metric_path / "metricId").missing()
        if metric.metric_id in seen or any(char.isspace() for char in metric.metric_id):
            raise (metric_path / "metricId").invalid(
                f"{quoted(metric.metric_id)} must be unique and without white space."
            )
        seen.add(metric.metric_id)
        if metric.safety_config:
            notes[f"{(metric_path / 'safetyConfig').as_sent} has no effect"] = None
        minimize = metric.goal is StudySpec.MetricSpec.GoalType.MINIMIZE
        yield Metric(metric.metric_id, "min" if minimize else "max")
    if len(seen) > 1:
        notes[
            f"studySpec.metrics: {study.metrics[0].metric_id} is optimized; the others are only recorded"
        ] = None


def _parameters(study: StudySpec, path: FieldPath) -> list[tuple[Parameter, FieldPath]]:
    """Each parameter with its path. Parents come before their conditional parameters."""
    if not study.parameters:
        raise (path / "parameters").missing()
    found: list[tuple[Parameter, FieldPath]] = []
    pending: list[tuple[_Parameter, FieldPath, Condition | None]] = [
        (parameter, path / "parameters" / index, None)
        for index, parameter in reversed(list(enumerate(study.parameters)))
    ]
    while pending:
        spec, parameter_path, condition = pending.pop()
        if spec.double_value_spec and study.algorithm is StudySpec.Algorithm.GRID_SEARCH:
            raise (parameter_path / "doubleValueSpec").invalid(
                "GRID_SEARCH tries every value, and a range of doubles has too many: use discreteValueSpec."
            )
        found.append((_parameter(spec, parameter_path, condition), parameter_path))
        if len(found) > MAX_PARAMETERS:
            raise path.invalid(f"there are more than {MAX_PARAMETERS} parameters.")
        for index, conditional in reversed(list(enumerate(spec.conditional_parameter_specs))):
            conditional_path = parameter_path / "conditionalParameterSpecs" / index
            if conditional.parameter_spec is None:
                raise (conditional_path / "parameterSpec").missing()
            child_condition = Condition(spec.parameter_id, _condition(conditional, conditional_path))
            pending.append((conditional.parameter_spec, conditional_path / "parameterSpec", child_condition))
    return found


def _condition(conditional: _Conditional, path: FieldPath) -> tuple[Value, ...]:
    if conditional.parent_discrete_values:
        return tuple(normalize(value) for value in conditional.parent_discrete_values.values)
    if conditional.parent_int_values:
        return tuple(conditional.parent_int_values.values)
    if conditional.parent_categorical_values:
        return tuple(conditional.parent_categorical_values.values)
    raise path.invalid(
        "one of parentDiscreteValues, parentIntValues and parentCategoricalValues is required."
    )


def _parameter(spec: _Parameter, path: FieldPath, condition: Condition | None) -> Parameter:
    name, scale = spec.parameter_id, _SCALES[spec.scale_type]
    if not name:
        raise (path / "parameterId").missing()
    if any(char.isspace() or char in "=\0" for char in name):
        raise (path / "parameterId").invalid(f"{quoted(name)} must have no white space and no `=`.")
    if spec.double_value_spec:
        bounds = spec.double_value_spec
        return Parameter(name, "float", bounds.min_value, bounds.max_value, scale=scale, condition=condition)
    if spec.integer_value_spec:
        bounds = spec.integer_value_spec
        return Parameter(
            name, "integer", bounds.min_value, bounds.max_value, scale=scale, condition=condition
        )
    if spec.categorical_value_spec:
        values: tuple[Value, ...] = tuple(spec.categorical_value_spec.values)
        if any("\0" in str(value) for value in values):
            raise (path / "categoricalValueSpec").invalid("a value has a NUL character.")
        return Parameter(name, "categorical", values=values, condition=condition)
    if spec.discrete_value_spec:
        values = tuple(normalize(value) for value in spec.discrete_value_spec.values)
        return Parameter(name, "discrete", values=values, scale=scale, condition=condition)
    raise path.invalid(
        "one of doubleValueSpec, integerValueSpec, categoricalValueSpec and discreteValueSpec is required."
    )


def _stopping(study: StudySpec, path: FieldPath) -> Stopping | None:
    for name, spec in (
        ("convexAutomatedStoppingSpec", study.convex_automated_stopping_spec),
        ("studyStoppingConfig", study.study_stopping_config),
    ):
        if spec is not None:
            field = (path / name).as_sent
            supported = (
                "medianAutomatedStoppingSpec and decayCurveStoppingSpec stop trials, maxTrialCount the search"
            )
            raise Unsupported(f"{field} is not supported; {supported}.", field=field)
    if study.median_automated_stopping_spec:
        return Stopping("median", _unit(study.median_automated_stopping_spec.use_elapsed_duration))
    if study.decay_curve_stopping_spec:
        return Stopping("decay_curve", _unit(study.decay_curve_stopping_spec.use_elapsed_duration))
    return None


def _unit(elapsed: bool) -> Literal["steps", "seconds"]:
    return "seconds" if elapsed else "steps"
