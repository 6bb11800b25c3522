"""The clusters, for operators: list, check and drain them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple, Protocol

from turnout.config import SHARED_CLUSTERS, Settings
from turnout.engines.remote import CheckResult, NodeJob, NodeUse
from turnout.errors import NotFound, Unsupported
from turnout.job.resources import Share
from turnout.service.jobs import Jobs


class RemoteCluster(Protocol):
    """What is needed of the engine of a cluster beyond this machine."""

    drained: bool

    async def drain(self, on: bool) -> None: ...
    async def nodes(self) -> list[NodeUse]: ...
    def check(self) -> AsyncIterator[CheckResult]: ...


class NodeView(NamedTuple):
    name: str
    state: str
    """In the cluster's own words."""
    usable: bool
    capacity: Share
    used: Share | None
    """By jobs of all users of the cluster; None: it does not say."""
    jobs: list[NodeJob]
    """Those that the reader may see."""


class ClusterView(NamedTuple):
    name: str
    engine: str
    shared: bool
    """Whether it is one of the names that every installation has."""
    trouble: str
    """Why it starts no jobs at the moment; empty if it does."""
    drained: bool
    nodes: list[NodeView]
    """Empty: this machine, or a cluster that does not tell."""


class Clusters:
    def __init__(self, jobs: Jobs, remote: Mapping[str, RemoteCluster], settings: Settings) -> None:
        """`remote`: the engines of clusters that are not this machine, by the cluster's name."""
        self._jobs = jobs
        self._remote = remote
        self._settings = settings

    async def all(self, project: str | None) -> list[ClusterView]:
        """`project`: only jobs of this project are shown on the nodes; None: all are."""
        troubles = self._jobs.cluster_troubles()
        asked = await asyncio.gather(*(one.nodes() for one in self._remote.values()))
        nodes = dict(zip(self._remote, asked, strict=True))
        return [
            ClusterView(
                name,
                cluster.engine,
                name in SHARED_CLUSTERS,
                troubles.get(name, ""),
                name in self._remote and self._remote[name].drained,
                [_node(one, project) for one in nodes.get(name, ())],
            )
            for name, cluster in sorted(self._settings.all_clusters().items())
        ]

    def names_of(self, engine: str) -> list[str]:
        """The clusters that an engine runs."""
        return [
            name
            for name, one in sorted(self._settings.all_clusters().items())
            if engine in (one.engine, f"{one.engine}/{name}")
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


def _node(use: NodeUse, project: str | None) -> NodeView:
    name, state, usable, capacity, used, _ = use.node
    jobs = [job for job in use.jobs if project in (None, job.project)]
    return NodeView(name, state, usable, capacity, used, jobs)
