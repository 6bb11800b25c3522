"""Which engine runs the jobs of which cluster."""

from collections.abc import Mapping

from turnout.engines.engine import Engine, Traits

NO_ENGINE = ""
"""The engine of a cluster that is not in the settings. Its jobs wait until the cluster is back."""


class EngineRegistry:
    def __init__(self, engines: Mapping[str, Engine], clusters: Mapping[str, str]) -> None:
        """`engines` by name; `clusters`: the name of the engine of each cluster in the settings."""
        self.engines = engines
        self.clusters = clusters

    @property
    def traits(self) -> dict[str, Traits]:
        return {name: engine.traits for name, engine in self.engines.items()}

    def name(self, cluster: str) -> str:
        return self.clusters.get(cluster, NO_ENGINE)

    def of(self, cluster: str) -> Engine:
        """The cluster's engine. For a cluster that is not in the settings the first one, which reads its jobs' logs."""
        return self.engines.get(self.name(cluster)) or next(iter(self.engines.values()))
