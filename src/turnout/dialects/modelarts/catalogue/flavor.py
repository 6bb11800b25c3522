"""Finds the flavor and the pool that a document names, and the resources they stand for."""

import difflib
import math
from typing import Any, NamedTuple

import msgspec

from turnout import config
from turnout.dialects.modelarts import errors, wire
from turnout.dialects.modelarts.catalogue import tables
from turnout.dialects.modelarts.catalogue.tables import GB, Flavor
from turnout.dialects.modelarts.errors import invalid, quoted
from turnout.job import Resources

MAX_NODES = 1000
UNLIMITED = Flavor(name="", pool=True, max_num=MAX_NODES)
"""For a dedicated pool without a flavor: no limits."""


class ResolvedFlavor(NamedTuple):
    flavor: Flavor
    resources: Resources
    nodes: int
    cluster: str
    pool: str


def resolve(requested: wire.Resource, settings: config.Settings, field: str) -> ResolvedFlavor:
    pool = requested.pool_id or ""
    if not requested.flavor_id and not pool:
        raise invalid(
            errors.INVALID,
            f"{field}.flavor_id",
            " is missing: set flavor_id, or pool_id with or without flavor_id.",
        )
    cluster = _cluster(pool, settings, field)
    flavor = _flavor(requested.flavor_id, pool, field) if requested.flavor_id else UNLIMITED
    if flavor.id and pool and settings.pools[pool].flavor_type == "CPU":
        detail = f": the pool {pool} has CPU nodes, for which there are no flavors; leave it out."
        raise invalid(errors.NO_SUCH_FLAVOR, f"{field}.flavor_id", detail)
    nodes = 1 if requested.node_count is None else requested.node_count
    if nodes < 1:
        raise invalid(errors.INVALID, f"{field}.node_count", f" must be at least 1, not {nodes}.")
    if nodes > flavor.max_num:
        owner = f"{flavor.id} has at most" if flavor.id else "a pool has at most"
        raise invalid(
            errors.TOO_MANY_NODES, f"{field}.node_count", f": {owner} {flavor.max_num} nodes, not {nodes}."
        )
    custom = requested.main_container_customized_flavor
    resources = flavor.resources if custom is None else _customized(custom, flavor, pool, field)
    return ResolvedFlavor(flavor, resources, nodes, cluster, pool)


def stored(requested: wire.Resource, resolved: ResolvedFlavor) -> dict[str, Any]:
    """The stored `resource`. A pool's job without a flavor has no `flavor_detail`."""
    given = {key: value for key, value in msgspec.to_builtins(requested).items() if value != ""}
    flavor = resolved.flavor
    named = {"flavor_name": flavor.name} if flavor.id else {}
    detail = {"flavor_detail": flavor.detail()} if flavor.id else {}
    return {"policy": flavor.policy, **given, "node_count": resolved.nodes, **named, **detail}


def _cluster(pool: str, settings: config.Settings, field: str) -> str:
    default = next(iter(settings.all_clusters()))
    if not pool:
        return default
    declared = settings.pools.get(pool)
    if declared is None:
        known = ", ".join(settings.pools) or "none"
        raise invalid(
            errors.NO_SUCH_POOL,
            f"{field}.pool_id",
            f": there is no pool {quoted(pool)}; the pools are: {known}. "
            "Declare pools in the settings as [pools.<id>] cluster.",
        )
    return declared.cluster or default


def _flavor(name: str, pool: str, field: str) -> Flavor:
    field_path = f"{field}.flavor_id"
    flavor = tables.flavors().get(name)
    if flavor is None:
        close = difflib.get_close_matches(name[:100], tables.flavors(), 1)
        hint = f"did you mean {close[0]}?" if close else "GET training-job-flavors lists all."
        raise invalid(errors.NO_SUCH_FLAVOR, field_path, f": there is no flavor {quoted(name)}; {hint}")
    if flavor.npus:
        raise invalid(
            errors.OVER_QUOTA, field_path, f": {name} needs Ascend NPUs, and this machine has none."
        )
    if flavor.pool and not pool:
        raise invalid(
            errors.NO_SUCH_FLAVOR, field_path, f": {name} is for dedicated pools: set pool_id as well."
        )
    if pool and not flavor.pool:
        pool_flavors = ", ".join(
            pool_flavor.id for pool_flavor in tables.flavors().values() if pool_flavor.pool
        )
        raise invalid(
            errors.NO_SUCH_FLAVOR,
            field_path,
            f": {name} is not for dedicated pools; leave it out or use {pool_flavors}.",
        )
    return flavor


def _customized(requested: wire.CustomFlavor, flavor: Flavor, pool: str, field: str) -> Resources:
    """The resources of the main container on a node of a dedicated pool."""
    field_path = f"{field}.main_container_customized_flavor"
    if not pool:
        raise invalid(errors.INVALID, field_path, " is for dedicated pools: set pool_id as well.")
    for key, value in (
        ("cpu_core_num", requested.cpu_core_num),
        ("mem_size", requested.mem_size),
        ("accelerator_num", requested.accelerator_num),
    ):
        if value is not None and not (math.isfinite(value) and 0 <= value <= 1 << 20):
            raise invalid(
                errors.INVALID, f"{field_path}.{key}", f": {value} must be a number from 0 to {1 << 20}."
            )
    gpus = flavor.gpus if requested.accelerator_num is None else math.ceil(requested.accelerator_num)
    return Resources.of(
        cores=requested.cpu_core_num or 0, memory=int((requested.mem_size or 0) * GB), gpus=gpus
    )


def check_fits(
    resolved: ResolvedFlavor, requirements: list[wire.Requirement], ascend: bool, field: str
) -> None:
    """Raises Invalid if the algorithm or the engine cannot use the flavor."""
    field_path = f"{field}.flavor_id"
    if ascend and resolved.resources.gpus:
        detail = f": the engine is for Ascend and does not run on {resolved.flavor.id or 'GPUs'}; use a CPU flavor."
        raise invalid(errors.ENGINE_FLAVOR_MISMATCH, field_path, detail)
    kind = "GPU" if resolved.resources.gpus else "CPU"
    facts = {
        "flavor_type": (kind, f"is {kind}", field_path),
        "device_distributed_mode": (
            _mode(resolved.resources.gpus),
            f"has {resolved.resources.gpus} devices",
            field_path,
        ),
        "host_distributed_mode": (
            _mode(resolved.nodes),
            f"has {resolved.nodes} nodes",
            f"{field}.node_count",
        ),
    }
    for requirement in requirements:
        allowed = requirement.values or requirement.value or ()
        fact, detail, wrong_field = facts.get(requirement.key or "", ("", "", ""))
        # An algorithm that can use several nodes or devices can use one.
        if not allowed or fact in allowed or (fact == "singular" and "multiple" in allowed):
            continue
        allowed_text = " or ".join(allowed)
        raise invalid(
            errors.UNSUITABLE_FLAVOR,
            wrong_field,
            f": the job {detail}; the algorithm requires {requirement.key} {allowed_text}.",
        )


def _mode(count: int) -> str:
    return "multiple" if count > 1 else "singular"
