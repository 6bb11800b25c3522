"""What the remote engine takes from the settings, the same for every kind of cluster."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from turnout.clusters import Cluster
from turnout.config import Settings
from turnout.engines.remote.cluster import RunnerCall
from turnout.job import Launch
from turnout.paths import Paths

PORTS = 2
"""The ports of each replica: one for TF_CONFIG and the like, one for MASTER_PORT."""


class RemoteSettings(NamedTuple):
    name: str
    """The cluster's name."""
    paths: Paths
    call: RunnerCall
    """Without a token."""
    pending: int = 50
    """The most gangs that may wait in the cluster's own queue."""
    gang_seconds: float = 600
    """How long the members of a gang wait for each other."""
    log_bytes: int = 1 << 30
    sample_seconds: float = 60
    processes: int = 4096
    python: str = "python3"
    """The interpreter on the nodes, for messages."""
    pythons: Mapping[str, str] = MappingProxyType({})
    """The interpreter of each runtime, as the settings name it. The path must exist on the nodes."""
    runtime_mounts: frozenset[str] = frozenset()
    """The runtimes that need directories of this machine."""
    shared: tuple[str, ...] = ()
    """Directories that the nodes share with this machine."""

    @property
    def directory(self) -> Path:
        return self.paths.clusters / self.name

    @property
    def ports(self) -> int:
        return PORTS

    def shared_directory(self, source: str) -> str | None:
        """The directory of a `file://` source, if the nodes share it."""
        path = source.removeprefix("file://")
        if path == source or ".." in path.split("/"):
            return None
        inside = any(path.rstrip("/") == top or path.startswith(f"{top}/") for top in self.shared)
        return path if inside else None

    def refuses(self, launch: Launch) -> str:
        spec = launch.spec
        if spec.key:
            return f"cluster {self.name} runs no encrypted jobs: its nodes would see the data unencrypted"
        for mount in spec.mounts:
            scheme = mount.source.partition("://")[0]
            if scheme == "nfs":
                return (
                    f"{mount.source!r}: nodes of cluster {self.name} cannot mount NFS; use a shared directory"
                )
            if scheme == "file" and self.shared_directory(mount.source) is None:
                known = ", ".join(self.shared) or "none"
                return f"{mount.source!r} is not in a directory that cluster {self.name} shares ({known})"
        for role in spec.roles:
            if role.program.runtime in self.runtime_mounts:
                return (
                    f"the runtime {role.program.runtime} has directories of this machine (`mounts`), which the nodes "
                    f"of cluster {self.name} do not have"
                )
        return ""


def remote_settings(
    name: str, cluster: Cluster, settings: Settings, paths: Paths, call: RunnerCall
) -> RemoteSettings:
    """`call`: without a token."""
    runtimes = settings.runtimes.items()
    return RemoteSettings(
        name,
        paths,
        call,
        cluster.pending,
        cluster.gang_seconds,
        settings.limits.log_bytes,
        settings.limits.sample_seconds,
        settings.limits.processes,
        cluster.python,
        {runtime: one.python for runtime, one in runtimes if one.python},
        frozenset(runtime for runtime, one in runtimes if one.mounts),
        tuple(path.rstrip("/") for path in cluster.shared),
    )
