"""Ray: a gang is a placement group, and each replica has an actor in it that runs its runner."""

from turnout.engines.ray.cluster import RayCluster
from turnout.engines.ray.settings import RaySettings

__all__ = ["RayCluster", "RaySettings"]
