"""What the remote engine takes from the settings, the same for every kind of cluster."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from turnout.clusters import Cluster
from turnout.config import RuntimeSettings, Settings
from turnout.engines.remote.cluster import RunnerCall
from turnout.job import Launch
from turnout.paths import Paths
from turnout.storage.source import MOUNTED_SCHEMES

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
    volumes: Mapping[str, str] = MappingProxyType({})
    """Directories on the nodes by the beginning of the sources that are in them."""
    has_volumes: bool = False
    """Nodes have volumes in place of shared directories."""
    made_here: frozenset[str] = frozenset()
    """The runtimes whose environment Turnout makes on this machine, which the nodes do not have."""

    @property
    def directory(self) -> Path:
        return self.paths.clusters / self.name

    @property
    def ports(self) -> int:
        return PORTS

    def shared_directory(self, source: str) -> str | None:
        """The directory on the nodes of a source that needs no copy."""
        for beginning, directory in self.volumes.items():
            rest = source.rstrip("/").removeprefix(beginning)
            if rest != source.rstrip("/") and rest[:1] in ("", "/") and ".." not in rest.split("/"):
                return directory + rest
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
            if why := self._refuses_source(mount.source):
                return why
        for role in spec.roles:
            if role.program.runtime in self.made_here:
                return (
                    f"the environment of the runtime {role.program.runtime} is made on this machine only, and nodes of "
                    f"cluster {self.name} do not have it: install it there, and name it with `python` in a runtime "
                    "without `packages` and `requirements`"
                )
            if role.program.runtime in self.runtime_mounts:
                return (
                    f"the runtime {role.program.runtime} has directories of this machine (`mounts`), which the nodes "
                    f"of cluster {self.name} do not have"
                )
        return ""

    def _refuses_source(self, source: str) -> str:
        scheme, _, rest = source.partition("://")
        if scheme not in (*MOUNTED_SCHEMES, "file") or self.shared_directory(source) is not None:
            return ""
        shown = repr(
            f"cephfs://{rest.rpartition('@')[2]}" if scheme == "cephfs" else source
        )  # without its secret
        if self.has_volumes:
            known = ", ".join(self.volumes) or "none"
            return f"{shown} is in none of the volumes of cluster {self.name} ({known})"
        if scheme in MOUNTED_SCHEMES:
            return f"{shown}: nodes of cluster {self.name} mount nothing; use a shared directory, file://"
        known = ", ".join(self.shared) or "none"
        return f"{shown} is not in a directory that cluster {self.name} shares ({known})"


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
        "the Python of Ray's workers" if cluster.engine == "ray" else cluster.python,
        {runtime: _python_on_nodes(one) for runtime, one in runtimes if one.python},
        frozenset(runtime for runtime, one in runtimes if one.mounts),
        tuple(path.rstrip("/") for path in cluster.shared),
        cluster.volume_directories(),
        cluster.engine == "kubernetes",
        frozenset(runtime for runtime, one in runtimes if one.made)
        if cluster.engine != "kubernetes"
        else frozenset(),
    )


def _python_on_nodes(runtime: RuntimeSettings) -> str:
    return runtime.python if runtime.python.startswith("/") else f"python{runtime.python}"
