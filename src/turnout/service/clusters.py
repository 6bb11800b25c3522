"""The clusters, for operators: list, check and drain them."""

from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple, Protocol

from turnout.config import SHARED_CLUSTERS, Settings
from turnout.engines.remote import CheckResult
from turnout.errors import NotFound, Unsupported
from turnout.service.jobs import Jobs


class RemoteCluster(Protocol):
    """What is needed of the engine of a cluster beyond this machine."""

    drained: bool

    async def drain(self, on: bool) -> None: ...
    def check(self) -> AsyncIterator[CheckResult]: ...


class ClusterView(NamedTuple):
    name: str
    engine: str
    shared: bool
    """Whether it is one of the names that every installation has."""
    trouble: str
    """Why it starts no jobs at the moment; empty if it does."""
    drained: bool


class Clusters:
    def __init__(self, jobs: Jobs, remote: Mapping[str, RemoteCluster], settings: Settings) -> None:
        """`remote`: the engines of clusters that are not this machine, by the cluster's name."""
        self._jobs = jobs
        self._remote = remote
        self._settings = settings

    def all(self) -> list[ClusterView]:
        troubles = self._jobs.cluster_troubles()
        return [
            ClusterView(
                name,
                cluster.engine,
                name in SHARED_CLUSTERS,
                troubles.get(name, ""),
                name in self._remote and self._remote[name].drained,
            )
            for name, cluster in sorted(self._settings.all_clusters().items())
        ]

    async def drain(self, name: str, on: bool) -> None:
        """Whether new jobs of the cluster wait. Raises NotFound or Unsupported."""
        await self._find(name).drain(on)

    def check(self, name: str) -> AsyncIterator[CheckResult]:
        """Raises NotFound or Unsupported."""
        return self._find(name).check()

    def _find(self, name: str) -> RemoteCluster:
        if name in self._remote:
            return self._remote[name]
        known = self._settings.all_clusters()
        if name in known:
            raise Unsupported(f"cluster {name} is this machine: `turnout doctor` checks it")
        raise NotFound(f"there is no cluster {name!r}; there are {', '.join(sorted(known))}")
