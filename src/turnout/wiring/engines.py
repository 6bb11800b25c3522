"""The engines, by cluster."""

from functools import partial
from pathlib import Path
from typing import NamedTuple

from turnout import config
from turnout.clusters import Cluster as ClusterSettings
from turnout.engines import Engine, EngineRegistry
from turnout.engines.local import LocalEngine
from turnout.engines.local.supervisor.listeners import Listeners
from turnout.engines.remote import Cluster, RemoteEngine, RunnerCall, needed_runners, remote_settings
from turnout.runner import archive as runner_archive
from turnout.web import tls

from .base import Base, certificate
from .job_variables import local_variables, node_variables


class Engines(NamedTuple):
    local: LocalEngine
    remote: dict[str, RemoteEngine]
    """By the name of the cluster."""
    by_name: dict[str, Engine]
    registry: EngineRegistry

    async def open(self) -> None:
        for engine in self.by_name.values():
            await engine.open()

    def stopping(self) -> None:
        for engine in self.by_name.values():
            engine.stopping()

    async def close(self) -> None:
        for engine in self.by_name.values():
            await engine.close()


def make_engines(base: Base, listeners: Listeners) -> Engines:
    port = listeners.listening[0].getsockname()[1]
    remote = _remote_engines(base, port)
    local = LocalEngine(
        base.paths, base.settings, base.storage, base.ring, listeners, base.users, base.images
    )
    if base.settings.storage.in_jobs:
        local.shared_variables = partial(local_variables, base, port)
        for one in remote.values():
            one.calls.shared_variables = partial(node_variables, base, one.calls.endpoint)
    by_name: dict[str, Engine] = {"local": local}
    by_name |= {f"{one.traits.kind}/{name}": one for name, one in remote.items()}
    clusters = {
        name: f"{cluster.engine}/{name}" if name in remote else cluster.engine
        for name, cluster in base.settings.all_clusters().items()
    }
    return Engines(local, remote, by_name, EngineRegistry(by_name, clusters))


def _remote_engines(base: Base, port: int) -> dict[str, RemoteEngine]:
    """The engine of each cluster that is not this machine."""
    settings, directory = base.settings, base.paths.clusters
    clusters = settings.remote_clusters()
    if not clusters:
        return {}
    endpoint = settings.runner.url or settings.endpoint(settings.server.host, port)
    pair = certificate(settings)
    fingerprint = tls.fingerprint(pair) if pair else ""
    directory.mkdir(mode=0o700, exist_ok=True)
    archive, digest = runner_archive.build(directory)
    needed = needed_runners(directory)
    if needed is not None:
        runner_archive.remove_others(directory, needed | {digest})
    found: dict[str, RemoteEngine] = {}
    for name, one in clusters.items():
        call = RunnerCall(endpoint, name, "", fingerprint, str(archive), digest, settings.runner.patience)
        remote = remote_settings(name, one, settings, base.paths, call)
        found[name] = RemoteEngine(remote, _cluster(name, one, directory / name), base.storage)
    return found


def _cluster(name: str, settings: ClusterSettings, directory: Path) -> Cluster:
    """`directory`: where it may keep files."""
    match settings.engine:
        case "kubernetes":
            from turnout.engines.kubernetes import KubernetesCluster, KubernetesSettings

            kubernetes = KubernetesSettings.of(settings, config.cluster_environment(""))
            return KubernetesCluster(name, kubernetes, directory)
        case "ray":
            from turnout.engines.ray import RayCluster, RaySettings

            return RayCluster(name, RaySettings.of(settings, config.cluster_environment("RAY_")))
        case _:
            from turnout.engines.slurm import SlurmCluster, SlurmSettings

            slurm = SlurmSettings.of(settings, config.cluster_environment("SLURM_CONF"))
            return SlurmCluster(name, slurm, directory)
