"""Engines run replicas: the protocol of an engine, the registry of engines by cluster, a package for each engine."""

from turnout.engines.engine import Engine, Mark, Refused, ReplicaLog, Traits, Unreachable
from turnout.engines.registry import NO_ENGINE, EngineRegistry

__all__ = [
    "NO_ENGINE",
    "Engine",
    "EngineRegistry",
    "Mark",
    "Refused",
    "ReplicaLog",
    "Traits",
    "Unreachable",
]
