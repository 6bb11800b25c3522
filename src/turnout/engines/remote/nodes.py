"""The nodes of a cluster, for people: what each has, and which of our jobs run there."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from turnout.engines import Unreachable
from turnout.engines.remote.attempt import Member, RemoteAttempt
from turnout.engines.remote.cluster import Cluster, ClusterNode
from turnout.job import Attempt

FRESH_SECONDS = 15.0
"""The cluster is asked only when somebody wants to know, and not more often than this."""
_PATIENCE = 3.0
"""How long a reader waits for the cluster. Its answer is for the next one."""


class NodeJob(NamedTuple):
    """A job that runs on a node."""

    id: int
    project: str
    name: str
    replicas: int


class NodeUse(NamedTuple):
    node: ClusterNode
    jobs: list[NodeJob]


class Nodes:
    def __init__(self, cluster: Cluster, attempts: Mapping[Attempt, RemoteAttempt]) -> None:
        self._cluster = cluster
        self._attempts = attempts
        self._known: list[ClusterNode] = []
        self._asked_at = 0.0
        self._asking: asyncio.Task[None] | None = None

    async def all(self) -> list[NodeUse]:
        """Empty if the cluster does not tell."""
        if self._asking is None and (not self._asked_at or time.monotonic() - self._asked_at > FRESH_SECONDS):
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        if self._asking:
            await asyncio.wait((self._asking,), timeout=_PATIENCE)
        return [NodeUse(node, self._jobs_of(counts)) for node, counts in self._counted()]

    async def close(self) -> None:
        if self._asking:
            self._asking.cancel()
            await asyncio.wait((self._asking,))

    async def _ask(self) -> None:
        try:
            self._known = await self._cluster.nodes()
        except Unreachable:
            self._known = []  # the trouble of the cluster says why
        finally:
            self._asked_at, self._asking = time.monotonic(), None

    def _counted(self) -> list[tuple[ClusterNode, Counter[Attempt]]]:
        by_name: dict[str, Counter[Attempt]] = defaultdict(Counter)
        by_address: dict[str, Counter[Attempt]] = defaultdict(Counter)
        for attempt in self._attempts.values():
            for member in attempt.members.values():
                if _runs(member):
                    by_name[member.node][attempt.id] += 1
                    by_address[member.arrival.address if member.arrival else ""][attempt.id] += 1
        return [
            (node, by_address[node.address] if node.address else by_name[node.name]) for node in self._known
        ]

    def _jobs_of(self, counts: Counter[Attempt]) -> list[NodeJob]:
        launches = [(self._attempts[attempt].launch, count) for attempt, count in counts.items()]
        return [NodeJob(one.attempt.job, one.project, one.name, count) for one, count in launches]


def _runs(member: Member) -> bool:
    return bool(member.instance) and not member.over
