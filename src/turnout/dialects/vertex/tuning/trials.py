"""The trials of a hyperparameter tuning job: each as a custom job of its own, and as the resource shows them."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from turnout import config
from turnout.dialects.vertex import decode, study, translate, variables
from turnout.dialects.vertex.answer import location_of
from turnout.dialects.vertex.names import JobName
from turnout.dialects.vertex.place import Place
from turnout.dialects.vertex.times import spell_duration, spell_time
from turnout.dialects.vertex.wire import CustomJob, EnvVar
from turnout.dialects.vertex.wire_tuning import Trial as Shown
from turnout.job import Measurement, NewJob, Role, Trial, TrialState
from turnout.job.search import Value
from turnout.service import JobView

SCOPE = "trial"
LABEL = "trial_of"
METRICS = "/var/hypertune"
"""Where cloudml-hypertune writes, a directory of the replica's own."""
STATES: dict[TrialState, Shown.State] = {
    TrialState.REQUESTED: Shown.State.REQUESTED,
    TrialState.ACTIVE: Shown.State.ACTIVE,
    TrialState.STOPPING: Shown.State.STOPPING,
    TrialState.SUCCEEDED: Shown.State.SUCCEEDED,
    TrialState.INFEASIBLE: Shown.State.INFEASIBLE,
}


def trial_jobs(settings: config.Settings) -> Callable[[JobView, Trial], NewJob]:
    """What makes jobs of trials here."""

    def make(parent: JobView, trial: Trial) -> NewJob:
        return trial_job(parent, trial, settings)

    return make


def trial_job(parent: JobView, trial: Trial, settings: config.Settings) -> NewJob:
    """`trialJobSpec` with the trial's values as arguments, and a directory of its own below the job's."""
    kept: dict[str, Any] = msgspec.json.decode(parent.document)
    location, number = location_of(parent.job), trial_id(trial)
    document = {
        "displayName": f"{kept['displayName'][:100]}-trial-{number}",
        "jobSpec": _spec_of(kept["trialJobSpec"], trial),
    } | {key: kept[key] for key in ("labels", "encryptionSpec") if key in kept}
    place = Place.of(settings, parent.job.project, location)
    asked = decode.custom_job(msgspec.json.encode(document))
    new = translate.new_job(asked, place)
    told = {"CLOUD_ML_TRIAL_ID": number, "CLOUD_ML_HP_METRIC_FILE": f"{METRICS}/output.metrics"}
    roles = tuple(_with(role, told, asked.message, place) for role in new.spec.roles)
    spec = msgspec.structs.replace(new.spec, roles=roles, scratch=(*new.spec.scratch, METRICS), trial=number)
    return msgspec.structs.replace(
        new,
        spec=spec,
        scope=f"{SCOPE}:{parent.job.id}:{location}",
        handle=trial.id,
        cluster=parent.job.cluster,
        notes=(),
        labels={LABEL: str(parent.job.id)},
    )


def trial_id(trial: Trial) -> str:
    return str(trial.number + 1)


def shown(
    parent: JobView,
    trial: Trial,
    measurements: Sequence[Measurement],
    web_access_uris: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """As a Trial of the resource."""
    name = JobName(parent.job.project, location_of(parent.job), trial.child)
    row: dict[str, Any] = {
        "id": trial_id(trial),
        "state": STATES[trial.state].name,
        "parameters": [
            {"parameterId": name, "value": study.plain(value)} for name, value in trial.parameters.items()
        ],
    }
    if trial.metrics:
        row["finalMeasurement"] = _final(trial, measurements)
    if measurements:
        row["measurements"] = [_measured(one, trial) for one in measurements]
    if trial.started is not None:
        row["startTime"] = spell_time(trial.started)
    if trial.ended is not None:
        row["endTime"] = spell_time(trial.ended)
    if trial.state is TrialState.INFEASIBLE and trial.message:
        row["infeasibleReason"] = trial.message
    row["customJob"] = str(name)
    if web_access_uris:
        row["webAccessUris"] = dict(web_access_uris)
    return row


def _spec_of(asked: dict[str, Any], trial: Trial) -> dict[str, Any]:
    options = [f"--{name}={_spelt(value)}" for name, value in trial.parameters.items()]
    pools: list[dict[str, Any]] = []
    for pool in asked["workerPoolSpecs"]:
        kind = next((key for key in ("containerSpec", "pythonPackageSpec") if key in pool), "")
        more = {kind: pool[kind] | {"args": [*pool[kind].get("args", ()), *options]}} if kind else {}
        pools.append(pool | more)
    spec = asked | {"workerPoolSpecs": pools}
    base = asked.get("baseOutputDirectory", {}).get("outputUriPrefix")
    if base:
        spec["baseOutputDirectory"] = {"outputUriPrefix": f"{base.rstrip('/')}/{trial_id(trial)}"}
    return spec


def _spelt(value: Value) -> str:
    return value if isinstance(value, str) else str(study.plain(value))


def _with(role: Role, told: Mapping[str, str], job: CustomJob, place: Place) -> Role:
    """Told the trial's variables before the user's own, which may refer to them or replace them."""
    assert job.job_spec is not None
    pool = job.job_spec.worker_pool_specs[int(role.name.removeprefix("workerpool"))]
    program = pool.container_spec or pool.python_package_spec
    assert program is not None
    given = [*(EnvVar(name=name, value=value) for name, value in told.items()), *program.env]
    environment = variables.of_pool(job.job_spec, given, place.project, place.location)
    return msgspec.structs.replace(role, env=environment.env, late=environment.late)


def _final(trial: Trial, measurements: Sequence[Measurement]) -> dict[str, Any]:
    """The measurement that counts, which is one of those there are, or all that was last said."""
    same = [one for one in measurements if one.metrics == trial.metrics]
    if same:
        return _measured(same[-1], trial)
    return {"metrics": _metrics(trial.metrics)}


def _measured(one: Measurement, trial: Trial) -> dict[str, Any]:
    row: dict[str, Any] = {}
    if trial.started is not None:
        row["elapsedDuration"] = spell_duration(max(0, one.at - trial.started))
    if one.step:
        row["stepCount"] = str(one.step)
    return row | {"metrics": _metrics(one.metrics)}


def _metrics(metrics: Mapping[str, float]) -> list[dict[str, Any]]:
    return [{"metricId": name, "value": _double(value)} for name, value in metrics.items()]


def _double(value: float) -> float | str:
    """As protobuf's JSON has them."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
