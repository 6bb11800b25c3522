"""The environment of a pool's replicas: the variables of the service, overridden by the user's."""

from collections.abc import Iterable
from typing import NamedTuple

from turnout.dialects.vertex.resource_names import project_number
from turnout.dialects.vertex.wire import CustomJobSpec, EnvVar
from turnout.job.expand import expand, expand_partly, refers

JOB_ID = "CLOUD_ML_JOB_ID"
KNOWN_AT_START = frozenset(
    {
        JOB_ID,
        "CLUSTER_SPEC",
        "TF_CONFIG",
        "RANK",
        "WORLD_SIZE",
        "NODE_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "AIP_DASHBOARD_PORT",
        "HOSTNAME",
        "TURNOUT_JOB",
    }
)
"""Variables of the service whose values are known only when the replica starts."""

SERVICE_VARIABLES = frozenset({JOB_ID, "CLOUD_ML_PROJECT_ID", "CLOUD_ML_REGION", "PIP_BREAK_SYSTEM_PACKAGES"})
"""Variables that every job has."""


class Environment(NamedTuple):
    env: dict[str, str]
    late: tuple[str, ...]
    """See Role.late."""


def pool_environment(
    spec: CustomJobSpec, variables: Iterable[EnvVar], project: str, location: str
) -> Environment:
    env = _service_variables(spec, project, location)
    late = {JOB_ID: None}
    known = {name: value for name, value in env.items() if name not in late}
    deferred = KNOWN_AT_START
    for variable in variables:
        name, value = variable.name, variable.value
        if refers(value, deferred):
            env[name] = expand_partly(value, known, deferred)
            late[name] = None
            deferred |= {name}
            known.pop(name, None)
        else:
            env[name] = known[name] = expand(value, known)
            late.pop(name, None)
            deferred -= {name}
    return Environment(env, tuple(late))


def _service_variables(spec: CustomJobSpec, project: str, location: str) -> dict[str, str]:
    env = {
        JOB_ID: "$(TURNOUT_JOB)",
        "CLOUD_ML_PROJECT_ID": project_number(project),
        "CLOUD_ML_REGION": location,
        # In an image pip may install packages; on this machine it would stop at the file EXTERNALLY-MANAGED.
        "PIP_BREAK_SYSTEM_PACKAGES": "1",
    }
    if spec.base_output_directory:
        base = spec.base_output_directory.output_uri_prefix.rstrip("/")
        env["AIP_MODEL_DIR"] = f"{base}/model/"
        env["AIP_CHECKPOINT_DIR"] = f"{base}/checkpoints/"
        env["AIP_TENSORBOARD_LOG_DIR"] = f"{base}/logs/"
    if spec.tensorboard:
        env["AIP_TENSORBOARD_RESOURCE_NAME"] = spec.tensorboard
    # The SDK inside the program takes its experiment and run from these.
    if spec.experiment:
        experiment = env["AIP_EXPERIMENT_NAME"] = spec.experiment.rpartition("/")[2]
        if spec.experiment_run:
            run = spec.experiment_run.rpartition("/")[2]
            env["AIP_EXPERIMENT_RUN_NAME"] = run.removeprefix(f"{experiment}-")
    return env
