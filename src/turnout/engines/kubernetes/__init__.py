"""Kubernetes: a replica is a pod, and a ConfigMap owns everything that belongs to a gang."""

from turnout.engines.kubernetes.cluster import KubernetesCluster
from turnout.engines.kubernetes.settings import KubernetesSettings

__all__ = ["KubernetesCluster", "KubernetesSettings"]
