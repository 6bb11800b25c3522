"""A gang as the bridge gets it: what each replica takes of a node, and how its runner is called. Pure."""

from typing import Any

from turnout.engines.ray.settings import RaySettings
from turnout.engines.remote import Gang
from turnout.job import Resources

_CORE = 1000
_TYPE_SHARE = 0.001
"""What Ray itself takes of `accelerator_type:<type>`: enough to be placed on such a node."""


def submission(gang: Gang, settings: RaySettings) -> dict[str, Any]:
    """The arguments of the bridge's `submit`."""
    replicas = gang.launch.replicas()
    return {
        "name": gang.name,
        "strategy": "STRICT_SPREAD" if settings.spread else "PACK",
        "bundles": [bundle(role.resources, settings) for _, role in replicas],
        "replicas": [{"name": str(name), "call": _call(gang, str(name))} for name, _ in replicas],
    }


def bundle(resources: Resources, settings: RaySettings) -> dict[str, float]:
    """A replica without a CPU request takes one, so that a node does not get any number of them."""
    found: dict[str, float] = {"CPU": (resources.millicores or _CORE) / _CORE}
    if resources.memory:
        found["memory"] = resources.memory
    if resources.gpus:
        found[settings.accelerator] = resources.gpus
        if settings.accelerator_type:
            found[f"accelerator_type:{settings.accelerator_type}"] = _TYPE_SHARE
    return {**found, **settings.resources}


def _call(gang: Gang, replica: str) -> dict[str, Any]:
    runner = gang.runner
    environment = {
        "TURNOUT_TOKEN": runner.token,
        "TURNOUT_PATIENCE": f"{runner.patience:g}",
        # Ray counts memory when it places actors, and nobody limits what they use.
        "TURNOUT_ENFORCE_MEMORY": "1",
    }
    if runner.fingerprint:
        environment["TURNOUT_FINGERPRINT"] = runner.fingerprint
    return {
        "endpoint": runner.endpoint,
        "digest": runner.digest,
        "address": f"{runner.cluster}/{gang.launch.attempt}/{replica}",
        "patience": runner.patience,
        "environment": environment,
    }
