"""Which flavor in which pool, and what that is on this machine."""

import difflib
import math
from typing import Any, NamedTuple

import msgspec

from turnout import config
from turnout.dialects.modelarts import catalogue, faults, wire, wire_spec
from turnout.dialects.modelarts.catalogue import GB, Flavor
from turnout.dialects.modelarts.faults import shown, wrong
from turnout.job import Resources

MAX_NODES = 1000
UNLIMITED = Flavor(name="", pool=True, max_num=MAX_NODES)
"""A node of a dedicated pool of which no flavor is asked: as much of the machine as there is."""


class Chosen(NamedTuple):
    flavor: Flavor
    resources: Resources
    nodes: int
    cluster: str
    pool: str


def choose(asked: wire_spec.Resource, settings: config.Settings, field: str) -> Chosen:
    pool = asked.pool_id or ""
    if not asked.flavor_id and not pool:
        raise wrong(
            faults.BAD_PARAM,
            f"{field}.flavor_id",
            " is missing: say flavor_id, or pool_id with or without it.",
        )
    cluster = _cluster(pool, settings, field)
    flavor = _flavor(asked.flavor_id, pool, field) if asked.flavor_id else UNLIMITED
    nodes = 1 if asked.node_count is None else asked.node_count
    if nodes < 1:
        raise wrong(faults.BAD_PARAM, f"{field}.node_count", f" must be at least 1, not {nodes}.")
    if nodes > flavor.max_num:
        what = f"{flavor.id} has at most" if flavor.id else "a pool has at most"
        raise wrong(
            faults.TOO_MANY_NODES, f"{field}.node_count", f": {what} {flavor.max_num} nodes, not {nodes}."
        )
    custom = asked.main_container_customized_flavor
    resources = flavor.resources if custom is None else _customized(custom, flavor, pool, field)
    return Chosen(flavor, resources, nodes, cluster, pool)


def kept(asked: wire_spec.Resource, chosen: Chosen) -> dict[str, Any]:
    """`flavor_detail` is for the public pool only."""
    spelt = {key: value for key, value in msgspec.to_builtins(asked).items() if value != ""}
    flavor = chosen.flavor
    named = {"flavor_name": flavor.name} if flavor.id else {}
    detail = {} if chosen.pool else {"flavor_detail": flavor.detail()}
    return {"policy": flavor.policy, **spelt, "node_count": chosen.nodes, **named, **detail}


def _cluster(pool: str, settings: config.Settings, field: str) -> str:
    usual = next(iter(settings.all_clusters()))
    if not pool:
        return usual
    known = settings.pools.get(pool)
    if known is None:
        told = f"there are {', '.join(settings.pools)}" if settings.pools else "there is none"
        raise wrong(
            faults.NO_POOL,
            f"{field}.pool_id",
            f": there is no pool {shown(pool)}; {told}. One is declared in the settings as [pools.<id>] cluster.",
        )
    return known.cluster or usual


def _flavor(name: str, pool: str, field: str) -> Flavor:
    place = f"{field}.flavor_id"
    flavor = catalogue.flavors().get(name)
    if flavor is None:
        close = difflib.get_close_matches(name[:100], catalogue.flavors(), 1)
        hint = f"did you mean {close[0]}?" if close else "training-job-flavors lists all."
        raise wrong(faults.NO_FLAVOR, place, f": there is no flavor {shown(name)}; {hint}")
    if flavor.npus:
        raise wrong(faults.NOT_HERE, place, f": {name} has Ascend cards, of which there are none here.")
    if flavor.pool and not pool:
        raise wrong(faults.NO_FLAVOR, place, f": {name} is for dedicated pools; say pool_id too.")
    if pool and not flavor.pool:
        cards = ", ".join(one.id for one in catalogue.flavors().values() if one.pool)
        raise wrong(
            faults.NO_FLAVOR, place, f": {name} is not for dedicated pools; leave it out or use {cards}."
        )
    return flavor


def _customized(asked: wire_spec.CustomFlavor, flavor: Flavor, pool: str, field: str) -> Resources:
    """What the main container gets of a node of a dedicated pool."""
    place = f"{field}.main_container_customized_flavor"
    if not pool:
        raise wrong(faults.BAD_PARAM, place, " is for dedicated pools; say pool_id too.")
    for key, value in (
        ("cpu_core_num", asked.cpu_core_num),
        ("mem_size", asked.mem_size),
        ("accelerator_num", asked.accelerator_num),
    ):
        if value is not None and not (math.isfinite(value) and 0 <= value <= 1 << 20):
            raise wrong(
                faults.BAD_PARAM, f"{place}.{key}", f": {value} must be a number from 0 to {1 << 20}."
            )
    cards = flavor.gpus if asked.accelerator_num is None else math.ceil(asked.accelerator_num)
    return Resources(cpu=asked.cpu_core_num or 0, memory=int((asked.mem_size or 0) * GB), gpus=cards)


def check_fits(chosen: Chosen, requirements: list[wire.Requirement], ascend: bool, field: str) -> None:
    """Whether the algorithm and the engine can use it."""
    place = f"{field}.flavor_id"
    if ascend and chosen.resources.gpus:
        told = (
            f": the engine is for Ascend and does not run on {chosen.flavor.id or 'GPUs'}; use a CPU flavor."
        )
        raise wrong(faults.ENGINE_AND_FLAVOR, place, told)
    kind = "GPU" if chosen.resources.gpus else "CPU"
    facts = {
        "flavor_type": (kind, f"is {kind}", place),
        "device_distributed_mode": (
            _mode(chosen.resources.gpus),
            f"has {chosen.resources.gpus} devices",
            place,
        ),
        "host_distributed_mode": (_mode(chosen.nodes), f"has {chosen.nodes} nodes", f"{field}.node_count"),
    }
    for requirement in requirements:
        allowed = requirement.values or requirement.value or ()
        fact, told, where = facts.get(requirement.key or "", ("", "", ""))
        # What can be used on several can be used on one.
        if not allowed or fact in allowed or (fact == "singular" and "multiple" in allowed):
            continue
        wants = " or ".join(allowed)
        raise wrong(
            faults.WRONG_FLAVOR, where, f": the job {told}; the algorithm asks for {requirement.key} {wants}."
        )


def _mode(count: int) -> str:
    return "multiple" if count > 1 else "singular"
