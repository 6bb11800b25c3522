"""What the cluster takes from `[clusters.X]` with `engine = "ray"`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from turnout.clusters import Cluster

EMPTY: Mapping[str, float] = MappingProxyType({})


class RaySettings(NamedTuple):
    environment: Mapping[str, str]
    """Of the bridge."""
    address: str = "auto"
    """`<host>:<port>` of the head, or `auto`: the Ray of which this machine is a node."""
    python: str = "python3"
    """The interpreter on this machine that has the cluster's Ray."""
    spread: bool = False
    """Each replica on a node of its own."""
    resources: Mapping[str, float] = EMPTY
    """Custom resources that each replica takes."""
    accelerator: str = "GPU"
    """The resource of which a replica takes as many as it has accelerators."""
    accelerator_type: str = ""
    """What replicas with accelerators need a node of, such as `A100`."""

    @staticmethod
    def of(cluster: Cluster, environment: Mapping[str, str]) -> "RaySettings":
        return RaySettings(
            environment=environment,
            address=cluster.address or "auto",
            python=cluster.python,
            spread=cluster.spread,
            resources=cluster.resources,
            accelerator=cluster.accelerator,
            accelerator_type=cluster.accelerator_type,
        )
