"""A StudySpec as our Search: whether it makes sense, and what it comes to."""

from collections.abc import Iterator
from typing import Literal

from turnout.dialects.vertex.spelling import At, shown
from turnout.dialects.vertex.wire_tuning import HyperparameterTuningJob, StudySpec
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


def search(job: HyperparameterTuningJob, at: At, notes: dict[str, None]) -> Search:
    """Raises Invalid, or Unsupported for what is not done here."""
    study = job.study_spec
    if study is None:
        raise (at / "studySpec").missing()
    _within(job.max_trial_count, MAX_TRIALS, at / "maxTrialCount")
    _within(job.parallel_trial_count, MAX_PARALLEL, at / "parallelTrialCount")
    if job.max_failed_trial_count < 0:
        raise (at / "maxFailedTrialCount").wrong(f"it must not be negative, as {job.max_failed_trial_count}.")
    here = at / "studySpec"
    parameters = _parameters(study, here)
    found = Search(
        parameters=tuple(parameter for parameter, _ in parameters),
        metrics=tuple(_metrics(study, here / "metrics", notes)),
        algorithms=(Algorithm(ALGORITHMS[study.algorithm]),),
        max_trials=job.max_trial_count,
        parallel=job.parallel_trial_count,
        max_failed=job.max_failed_trial_count,
        stopping=_stopping(study, here),
        measurement="best"
        if study.measurement_selection_type is StudySpec.MeasurementSelectionType.BEST_MEASUREMENT
        else "last",
    )
    if study.observation_noise:
        notes["studySpec.observationNoise has no effect: the algorithm reckons with noise anyway"] = None
    places = {parameter.name: place for parameter, place in parameters}
    try:
        check(found)
    except Invalid as error:
        raise places.get(error.field, here).wrong(f"{error.message}.") from None
    return found


def plain(value: Value) -> Value:
    """A whole number without a fraction: what programs read as a number of layers."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def _within(count: int, most: int, at: At) -> None:
    if not count:
        raise at.missing()
    if not 1 <= count <= most:
        raise at.wrong(f"it must be from 1 to {most}, not {count}.")


def _metrics(study: StudySpec, at: At, notes: dict[str, None]) -> Iterator[Metric]:
    if not study.metrics:
        raise at.missing()
    if len(study.metrics) > MAX_METRICS:
        raise at.wrong(f"there are {len(study.metrics)}; {MAX_METRICS} are possible.")
    seen: set[str] = set()
    for index, metric in enumerate(study.metrics):
        here = at / index
        if not metric.metric_id:
            raise (here / "metricId").missing()
        if metric.metric_id in seen or any(char.isspace() for char in metric.metric_id):
            raise (here / "metricId").wrong(
                f"{shown(metric.metric_id)} must be one of its own, without white space."
            )
        seen.add(metric.metric_id)
        if metric.safety_config:
            notes[f"{(here / 'safetyConfig').spelt} has no effect"] = None
        goal = metric.goal is StudySpec.MetricSpec.GoalType.MINIMIZE
        yield Metric(metric.metric_id, "min" if goal else "max")
    if len(seen) > 1:
        notes[f"studySpec.metrics: {study.metrics[0].metric_id} decides; the others are shown"] = None


def _parameters(study: StudySpec, at: At) -> list[tuple[Parameter, At]]:
    """And where each stands. Parents come before what depends on them."""
    if not study.parameters:
        raise (at / "parameters").missing()
    found: list[tuple[Parameter, At]] = []
    pending: list[tuple[_Parameter, At, Condition | None]] = [
        (one, at / "parameters" / index, None) for index, one in reversed(list(enumerate(study.parameters)))
    ]
    while pending:
        spec, here, condition = pending.pop()
        if spec.double_value_spec and study.algorithm is StudySpec.Algorithm.GRID_SEARCH:
            raise (here / "doubleValueSpec").wrong(
                "GRID_SEARCH tries every value, and there are too many here; discreteValueSpec lists some."
            )
        found.append((_parameter(spec, here, condition), here))
        if len(found) > MAX_PARAMETERS:
            raise at.wrong(f"there are more than {MAX_PARAMETERS} parameters.")
        for index, one in reversed(list(enumerate(spec.conditional_parameter_specs))):
            where = here / "conditionalParameterSpecs" / index
            if one.parameter_spec is None:
                raise (where / "parameterSpec").missing()
            holds = Condition(spec.parameter_id, _condition(one, where))
            pending.append((one.parameter_spec, where / "parameterSpec", holds))
    return found


def _condition(one: _Conditional, at: At) -> tuple[Value, ...]:
    if one.parent_discrete_values:
        return tuple(plain(value) for value in one.parent_discrete_values.values)
    if one.parent_int_values:
        return tuple(one.parent_int_values.values)
    if one.parent_categorical_values:
        return tuple(one.parent_categorical_values.values)
    raise at.wrong("one of parentDiscreteValues, parentIntValues and parentCategoricalValues is required.")


def _parameter(spec: _Parameter, at: At, condition: Condition | None) -> Parameter:
    name, scale = spec.parameter_id, _SCALES[spec.scale_type]
    if not name:
        raise (at / "parameterId").missing()
    if any(char.isspace() or char in "=\0" for char in name):
        raise (at / "parameterId").wrong(f"{shown(name)} must have no white space and no `=`.")
    if spec.double_value_spec:
        one = spec.double_value_spec
        return Parameter(name, "float", one.min_value, one.max_value, scale=scale, condition=condition)
    if spec.integer_value_spec:
        one = spec.integer_value_spec
        return Parameter(name, "integer", one.min_value, one.max_value, scale=scale, condition=condition)
    if spec.categorical_value_spec:
        values: tuple[Value, ...] = tuple(spec.categorical_value_spec.values)
        if any("\0" in str(value) for value in values):
            raise (at / "categoricalValueSpec").wrong("a value has a NUL character.")
        return Parameter(name, "categorical", values=values, condition=condition)
    if spec.discrete_value_spec:
        values = tuple(plain(value) for value in spec.discrete_value_spec.values)
        return Parameter(name, "discrete", values=values, scale=scale, condition=condition)
    raise at.wrong(
        "one of doubleValueSpec, integerValueSpec, categoricalValueSpec and discreteValueSpec is required."
    )


def _stopping(study: StudySpec, at: At) -> Stopping | None:
    for name, given in (
        ("convexAutomatedStoppingSpec", study.convex_automated_stopping_spec),
        ("studyStoppingConfig", study.study_stopping_config),
    ):
        if given is not None:
            where = (at / name).spelt
            told = (
                "medianAutomatedStoppingSpec and decayCurveStoppingSpec stop trials, maxTrialCount the search"
            )
            raise Unsupported(f"{where} is not done here; {told}.", field=where)
    if study.median_automated_stopping_spec:
        return Stopping("median", _by(study.median_automated_stopping_spec.use_elapsed_duration))
    if study.decay_curve_stopping_spec:
        return Stopping("decay_curve", _by(study.decay_curve_stopping_spec.use_elapsed_duration))
    return None


def _by(elapsed: bool) -> Literal["steps", "seconds"]:
    return "seconds" if elapsed else "steps"
