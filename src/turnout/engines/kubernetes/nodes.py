"""The nodes of a Kubernetes cluster. Listing them needs a right for the whole cluster, which not every service has."""

from typing import Any

from turnout.engines.kubernetes.api import Api, ApiError
from turnout.engines.kubernetes.settings import KubernetesSettings
from turnout.engines.remote import ClusterNode
from turnout.job.resources import Share

_PAGE = "200"
"""A node is described in ten kilobytes and more."""
_MOST = 5000
_UNITS = {
    "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip


async def nodes(api: Api, settings: KubernetesSettings) -> list[ClusterNode]:
    """Those that the node selector for all jobs allows. Raises Unreachable."""
    selector = ",".join(f"{name}={value}" for name, value in settings.node_selectors.get("*", {}).items())
    found: list[ClusterNode] = []
    query = {"limit": _PAGE} | ({"labelSelector": selector} if selector else {})
    try:
        while len(found) < _MOST:
            page = await api.get("/api/v1/nodes", **query)
            found += [_node(item, settings.gpu_resource) for item in page.get("items") or ()]
            query["continue"] = (page.get("metadata") or {}).get("continue") or ""
            if not query["continue"]:
                break
    except ApiError:
        return []
    return found


def _node(item: dict[str, Any], gpu: str) -> ClusterNode:
    status = item.get("status") or {}
    conditions = {one["type"]: one["status"] for one in status.get("conditions") or ()}
    ready = conditions.get("Ready") == "True"
    closed = bool((item.get("spec") or {}).get("unschedulable"))
    has = status.get("allocatable") or {}
    capacity = Share(
        round(quantity(has.get("cpu")) * 1000), int(quantity(has.get("memory"))), int(quantity(has.get(gpu)))
    )
    # The words of `kubectl get nodes`.
    state = ("Ready" if ready else "NotReady") + (",SchedulingDisabled" if closed else "")
    return ClusterNode(item["metadata"]["name"], state, ready and not closed, capacity)


def quantity(text: str | None) -> float:
    """`1930m`, `16393236Ki`, `4`; what cannot be read counts as nothing."""
    number = (text or "0").rstrip("KMGTPkim")
    try:
        return float(number) * _UNITS.get((text or "0")[len(number) :], 1)
    except ValueError:
        return 0.0
