"""The trials of a hyperparameter tuning job: as custom jobs, and as Trial resources."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from turnout import config
from turnout.dialects.vertex import translate
from turnout.dialects.vertex.custom_jobs.environment import pool_environment
from turnout.dialects.vertex.installation import Installation
from turnout.dialects.vertex.protobuf import codec
from turnout.dialects.vertex.protobuf.times import spell_duration, spell_time
from turnout.dialects.vertex.render import document_of, location_of
from turnout.dialects.vertex.resource_names import JobName
from turnout.dialects.vertex.tuning import study
from turnout.dialects.vertex.tuning.wire import Trial as TrialMessage
from turnout.dialects.vertex.wire import CustomJob, EnvVar
from turnout.job import Measurement, NewJob, Role, Trial, TrialState
from turnout.job.search import Value
from turnout.service import JobView
from turnout.service.images import ImageRules

SCOPE = "trial"
PARENT_LABEL = "trial_of"
METRICS_DIRECTORY = "/var/hypertune"
"""The directory of each replica that cloudml-hypertune writes to."""
STATES: dict[TrialState, TrialMessage.State] = {
    TrialState.REQUESTED: TrialMessage.State.REQUESTED,
    TrialState.ACTIVE: TrialMessage.State.ACTIVE,
    TrialState.STOPPING: TrialMessage.State.STOPPING,
    TrialState.SUCCEEDED: TrialMessage.State.SUCCEEDED,
    TrialState.INFEASIBLE: TrialMessage.State.INFEASIBLE,
}


def trial_job(
    parent: JobView, trial: Trial, settings: config.Settings, images: ImageRules | None = None
) -> NewJob:
    """`trialJobSpec` with the trial's values as arguments and its own output directory below the job's."""
    parent_document = document_of(parent)
    location, number = location_of(parent.job), trial_id(trial)
    document = {
        "displayName": f"{parent_document['displayName'][:100]}-trial-{number}",
        "jobSpec": _trial_spec(parent_document["trialJobSpec"], trial),
    } | {key: parent_document[key] for key in ("labels", "encryptionSpec") if key in parent_document}
    resource = parent_document["trialJobSpec"].get("persistentResourceId", "")
    installation = Installation.of(settings, parent.job.project, location, images)._replace(
        resources={resource: parent.job.cluster} if resource else {}
    )
    decoded = codec.custom_job(msgspec.json.encode(document))
    new = translate.new_job(decoded, installation)
    variables = {
        "CLOUD_ML_TRIAL_ID": number,
        "CLOUD_ML_HP_METRIC_FILE": f"{METRICS_DIRECTORY}/output.metrics",
    }
    roles = tuple(
        _with_trial_variables(role, variables, decoded.message, installation) for role in new.spec.roles
    )
    spec = msgspec.structs.replace(
        new.spec, roles=roles, scratch=(*new.spec.scratch, METRICS_DIRECTORY), trial=number
    )
    return msgspec.structs.replace(
        new,
        spec=spec,
        scope=f"{SCOPE}:{parent.job.id}:{location}",
        handle=trial.id,
        cluster=parent.job.cluster,
        notes=(),
        labels={PARENT_LABEL: str(parent.job.id)},
    )


def trial_id(trial: Trial) -> str:
    return str(trial.number + 1)


def resource(
    parent: JobView,
    trial: Trial,
    measurements: Sequence[Measurement],
    web_access_uris: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The Trial resource."""
    name = JobName(parent.job.project, location_of(parent.job), trial.child)
    row: dict[str, Any] = {
        "id": trial_id(trial),
        "state": STATES[trial.state].name,
        "parameters": [
            {"parameterId": name, "value": study.normalize(value)} for name, value in trial.parameters.items()
        ],
    }
    if trial.metrics:
        row["finalMeasurement"] = _final_measurement(trial, measurements)
    if measurements:
        row["measurements"] = [_measurement(measurement, trial) for measurement in measurements]
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


def _trial_spec(job_spec: dict[str, Any], trial: Trial) -> dict[str, Any]:
    options = [f"--{name}={_argument(value)}" for name, value in trial.parameters.items()]
    pools: list[dict[str, Any]] = []
    for pool in job_spec["workerPoolSpecs"]:
        kind = next((key for key in ("containerSpec", "pythonPackageSpec") if key in pool), "")
        more = {kind: pool[kind] | {"args": [*pool[kind].get("args", ()), *options]}} if kind else {}
        pools.append(pool | more)
    spec = job_spec | {"workerPoolSpecs": pools}
    base = job_spec.get("baseOutputDirectory", {}).get("outputUriPrefix")
    if base:
        spec["baseOutputDirectory"] = {"outputUriPrefix": f"{base.rstrip('/')}/{trial_id(trial)}"}
    return spec


def _argument(value: Value) -> str:
    return value if isinstance(value, str) else str(study.normalize(value))


def _with_trial_variables(
    role: Role, variables: Mapping[str, str], job: CustomJob, installation: Installation
) -> Role:
    """Adds the trial's variables before the user's, which can refer to them or replace them."""
    assert job.job_spec is not None
    pool = job.job_spec.worker_pool_specs[int(role.name.removeprefix("workerpool"))]
    program = pool.container_spec or pool.python_package_spec
    assert program is not None
    env = [*(EnvVar(name=name, value=value) for name, value in variables.items()), *program.env]
    environment = pool_environment(job.job_spec, env, installation.project, installation.location)
    return msgspec.structs.replace(role, env=environment.env, late=environment.late)


def _final_measurement(trial: Trial, measurements: Sequence[Measurement]) -> dict[str, Any]:
    """The last measurement with the trial's metrics; if there is none, the metrics alone."""
    same = [measurement for measurement in measurements if measurement.metrics == trial.metrics]
    if same:
        return _measurement(same[-1], trial)
    return {"metrics": _metrics(trial.metrics)}


def _measurement(measurement: Measurement, trial: Trial) -> dict[str, Any]:
    row: dict[str, Any] = {}
    if trial.started is not None:
        row["elapsedDuration"] = spell_duration(max(0, measurement.at - trial.started))
    if measurement.step:
        row["stepCount"] = str(measurement.step)
    return row | {"metrics": _metrics(measurement.metrics)}


def _metrics(metrics: Mapping[str, float]) -> list[dict[str, Any]]:
    return [{"metricId": name, "value": _double(value)} for name, value in metrics.items()]


def _double(value: float) -> float | str:
    """Protobuf's JSON spells NaN and infinities as text."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
