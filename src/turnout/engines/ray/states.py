"""What the bridge says of a gang, in words. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from turnout.engines.remote import ClusterJob, ClusterNode, EndKind, Gone, Phase
from turnout.job.resources import CORE, Share

Resources = Mapping[str, float]

_WAITING = ("PENDING", "PREPARED")
_MOST_WORDS = 500
_GIB = 1 << 30

DEATHS = (
    ("running low on memory", EndKind.OUT_OF_MEMORY, "its node ran out of memory, and Ray ended it"),
    ("placement group was removed", EndKind.CANCELLED, "its placement group was removed"),
    ("PLACEMENT_GROUP_REMOVED", EndKind.CANCELLED, "its placement group was removed"),
    ("ray.kill", EndKind.CANCELLED, "its actor was killed by `ray.kill`"),
    ("RAY_KILL", EndKind.CANCELLED, "its actor was killed by `ray.kill`"),
    ("NODE_DIED", EndKind.NODE_LOST, "its node was lost"),
    ("its node has died", EndKind.NODE_LOST, "its node was lost"),
    ("node was terminated", EndKind.NODE_LOST, "its node was lost"),
    ("is dead because the node", EndKind.NODE_LOST, "its node was lost"),
    ("owner has died", EndKind.NODE_LOST, "its owner was lost"),
)
"""By what Ray's messages about dead actors contain. The general one about dead workers names several possible causes,
so no word of it may be here.
"""
WORST_FIRST = (EndKind.NODE_LOST, EndKind.OUT_OF_MEMORY, EndKind.CANCELLED, EndKind.FAILED, EndKind.EXITED)


class Cluster(NamedTuple):
    """The resources of the Ray cluster."""

    nodes: Sequence[Resources]
    """Those of each node that is alive."""
    available: Resources
    """What is free on all nodes together."""


def cluster_job(gang: Mapping[str, Any], cluster: Cluster | None = None) -> ClusterJob:
    """`cluster`: needed only for the reason why a gang waits."""
    handle, name, state = gang["handle"], gang["name"], gang["state"]
    over = {one["name"]: _gone(one["over"]) for one in gang["members"] if one["over"]}
    if over and len(over) == len(gang["members"]):
        kind = next(kind for kind in WORST_FIRST if any(one.end is kind for one in over.values()))
        why = next(one.why for one in over.values() if one.end is kind)
        return ClusterJob(handle, name, Phase.ENDED, why, kind, gone=over)
    if state == "REMOVED":
        return ClusterJob(
            handle, name, Phase.ENDED, "Ray: its placement group was removed", EndKind.CANCELLED, gone=over
        )
    if state in _WAITING and not over:
        why = waiting(gang["bundles"], gang["strategy"], cluster) if cluster else "waiting for resources"
        return ClusterJob(handle, name, Phase.PENDING, f"Ray: {why}")
    return ClusterJob(handle, name, Phase.RUNNING, nodes=", ".join(gang.get("nodes", ())), gone=over)


def cluster_node(node: Mapping[str, Any], accelerator: str) -> ClusterNode:
    """Ray's nodes have no names: people know them by their addresses. `accelerator`: Ray's name of it."""
    capacity, free = (_share(node[kind], accelerator) for kind in ("resources", "free"))
    address = node["address"]
    return ClusterNode(address, "alive", True, capacity, capacity - free, address)


def _share(resources: Resources, accelerator: str) -> Share:
    cpus, gpus = resources.get("CPU", 0.0), resources.get(accelerator, 0.0)
    return Share(round(cpus * CORE), int(resources.get("memory", 0)), int(gpus))


def _gone(over: Mapping[str, Any]) -> Gone:
    if "code" in over:
        return Gone(EndKind.EXITED, "")
    text = over["text"]
    found = next(((kind, words) for part, kind, words in DEATHS if part in text), None)
    if found:
        return Gone(found[0], f"Ray: {found[1]}")
    if over["error"] not in ("ActorDiedError", "RayActorError", "ActorUnschedulableError"):
        return Gone(EndKind.FAILED, f"Ray: its actor could not be started: {_short(text)}")
    if over["error"] == "ActorUnschedulableError":
        return Gone(EndKind.FAILED, f"Ray: its actor cannot be placed: {_short(text)}")
    return Gone(EndKind.EXITED, "")


def last_words(gang: Mapping[str, Any], replica: str) -> str:
    """The last lines that the runner printed, or else Ray's message about its actor."""
    over = next((one["over"] for one in gang["members"] if one["name"] == replica and one["over"]), None)
    if over is None:
        return ""
    return over["words"] if "code" in over else _short(over["text"])


def _short(text: str) -> str:
    """A message of Ray in one line, without its indented lines, which name the actor and its node."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and "\t" not in line[:1]]
    return " ".join(lines)[:_MOST_WORDS]


def waiting(bundles: Sequence[Resources], strategy: str, cluster: Cluster) -> str:
    """`waiting for 4 CPU on each of 3 nodes; 2 CPU of 12 are free`."""
    bundles = [_ordered(one) for one in bundles]
    missing = _too_large(bundles, cluster.nodes)
    if missing:
        return missing
    nodes = len(cluster.nodes)
    if strategy == "STRICT_SPREAD" and len(bundles) > nodes:
        return f"it needs a node for each of its {len(bundles)} replicas, and the cluster has {nodes} nodes"
    total = _sum(cluster.nodes)
    needed = _sum(bundles)
    short = [name for name in needed if needed[name] > cluster.available.get(name, 0)]
    names = short or list(needed)
    free = ", ".join(
        f"{amount(name, cluster.available.get(name, 0))} of {amount(name, total.get(name, 0))} are free"
        for name in names
    )
    wanted = ", ".join(amount(name, needed[name]) for name in needed)
    apart = " on nodes of their own" if strategy == "STRICT_SPREAD" and len(bundles) > 1 else ""
    return f"waiting for resources: it needs {wanted} for {_replicas(len(bundles))}{apart}; {free}"


def _too_large(bundles: Sequence[Resources], nodes: Sequence[Resources]) -> str:
    for one in bundles:
        if not any(all(node.get(name, 0) >= value for name, value in one.items()) for node in nodes):
            wanted = ", ".join(amount(name, value) for name, value in one.items())
            largest = ", ".join(
                amount(name, max((node.get(name, 0) for node in nodes), default=0)) for name in one
            )
            return f"no node has {wanted} for a replica (the most that a node has: {largest}): it waits for such a node"
    return ""


def _ordered(bundle: Resources) -> Resources:
    """Ray gives them in any order."""
    return {
        name: bundle[name] for name in sorted(bundle, key=lambda name: (name not in ("CPU", "GPU"), name))
    }


def amount(name: str, value: float) -> str:
    return f"{value / _GIB:.3g} GiB memory" if name == "memory" else f"{value:g} {name}"


def _replicas(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"


def _sum(parts: Sequence[Resources]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return total
