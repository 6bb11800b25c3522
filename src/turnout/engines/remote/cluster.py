"""The protocol of a cluster: what the remote engine needs of Slurm, Kubernetes or Ray.

A cluster runs runners: one for each replica of a gang. The runner itself reports to the service what happens to the
program, through the runner gateway. The engine asks the cluster for what a runner cannot know: why a gang waits, and
why its runners ended without a report.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol

from turnout.job import Launch, ReplicaName
from turnout.job.resources import Share


class RunnerCall(NamedTuple):
    """How the runners of one attempt are started and what they need to reach the service."""

    endpoint: str
    """The URL of the service as nodes reach it."""
    cluster: str
    token: str
    """Opens this attempt at the runner gateway. Never put it into a command line."""
    fingerprint: str
    """The SHA-256 of the service's certificate; empty: the usual verification, or plain HTTP."""
    archive: str
    """The path of `runner.pyz` on this machine."""
    digest: str
    """Its SHA-256. Nodes can fetch it from `<endpoint>/runner/v1/<digest>.pyz` without a token."""
    patience: float = 86_400
    """Seconds for which a runner goes on without the service (`TURNOUT_PATIENCE`)."""

    def address(self, launch: Launch, replica: ReplicaName) -> str:
        """The runner's second argument."""
        return f"{self.cluster}/{launch.attempt}/{replica}"


class Phase(StrEnum):
    PENDING = "pending"
    """It waits in the cluster's queue."""
    RUNNING = "running"
    ENDED = "ended"
    """None of its runners is alive, or will be."""


class EndKind(StrEnum):
    """Why a gang ended, by what the cluster knows."""

    EXITED = "exited"
    """Its runners ended by themselves."""
    CANCELLED = "cancelled"
    """Somebody cancelled it on the cluster."""
    TIME_LIMIT = "time limit"
    OUT_OF_MEMORY = "out of memory"
    NODE_LOST = "node lost"
    PREEMPTED = "preempted"
    FAILED = "failed"
    """It could not be started."""


class Gone(NamedTuple):
    """Why one runner of a gang is not there any more."""

    end: EndKind
    why: str = ""


class ClusterJob(NamedTuple):
    """What a cluster says of one gang."""

    handle: str
    """The cluster's own name for it, such as the number of the Slurm job."""
    name: str
    """`Gang.name`"""
    phase: Phase
    why: str = ""
    """In words for the user: why it waits, or why it ended."""
    end: EndKind | None = None
    nodes: str = ""
    waited: float | None = None
    """Seconds in the cluster's queue before its last start, by the cluster's clock; None: the cluster does not say."""
    gone: Mapping[str, Gone] = MappingProxyType({})
    """By the name of the replica: runners that ended, also while others of the gang go on, if the cluster knows."""
    is_own: bool = False
    """Certainly submitted by this service, so that it is left over if this service does not know it any more."""


class Gang(NamedTuple):
    """An attempt to be run on a cluster."""

    name: str
    """Unique, and the same for each try to submit it: the cluster finds it by this name."""
    launch: Launch
    runner: RunnerCall


class ClusterNode(NamedTuple):
    """A node, as the cluster describes it."""

    name: str
    state: str
    """In the cluster's own words: `idle`, `Ready`, …"""
    usable: bool
    """Whether it takes jobs."""
    capacity: Share
    used: Share | None = None
    """What jobs of all users have of it; None: the cluster does not say."""
    address: str = ""
    """Which of the replicas are there is told by their addresses; empty: by the name of the node."""


class CheckResult(NamedTuple):
    """One line of `turnout cluster check`."""

    what: str
    ok: bool
    detail: str = ""

    @staticmethod
    def reach(endpoint: str, trouble: str) -> "CheckResult":
        """Whether a node reaches the service. `trouble`: why not; empty if it does."""
        advice = "; set [runner] url to an address of this service that nodes reach"
        return CheckResult(f"a node reaches {endpoint}", not trouble, trouble and trouble + advice)


class Cluster(Protocol):
    """All calls may raise Unreachable: the cluster did not answer, and the same call may work later."""

    kind: str
    """`slurm`, …"""

    async def open(self) -> None:
        """Called once, before anything else. Must not wait for the cluster."""
        ...

    async def close(self) -> None: ...

    def refuses(self, launch: Launch) -> str:
        """Why this cluster can never run such a gang, from the settings alone; empty: it may. Called at create."""
        ...

    async def submit(self, gang: Gang) -> str:
        """Puts the gang into the cluster's queue and returns its handle. Raises Refused if the cluster rejects it.

        Idempotent by `Gang.name`: if an earlier call reached the cluster although its answer was lost, returns that
        handle.
        """
        ...

    async def cancel(self, handle: str) -> None:
        """Ends the gang. Not an error if the cluster does not know it (any more)."""
        ...

    async def forget(self, handle: str) -> None:
        """Removes what the cluster keeps of a gang that has ended. Not an error if it keeps nothing."""
        ...

    def is_placed(self, handle: str) -> bool:
        """Whether each member has its place. Runners that come earlier have to wait: the cluster may take the gang
        back into its queue.
        """
        ...

    def watch(self) -> AsyncGenerator[list[ClusterJob]]:
        """Yields everything that the cluster lists of ours, now and whenever it may have changed.

        A gang that is missing in a list is not gone: the list may be incomplete. `look` says what became of it.
        """
        ...

    async def look(self, handle: str) -> ClusterJob | None:
        """What the cluster says of one gang. None: it answered that it does not know it (any more)."""
        ...

    async def last_words(self, handle: str, replica: ReplicaName) -> str:
        """What a runner that never reached the service printed, if the cluster kept it."""
        ...

    async def nodes(self) -> list[ClusterNode]:
        """Those that jobs may get. Empty if the cluster does not tell."""
        ...

    def check(self, runner: RunnerCall) -> AsyncIterator[CheckResult]:
        """For `turnout cluster check`: commands, rights, and whether a node reaches the service."""
        ...
