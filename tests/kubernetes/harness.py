"""A remote engine on the real Kubernetes, with the runner gateway on an address that pods reach."""

import asyncio
from pathlib import Path
from typing import Any

from tests.engines.remote.harness import RemoteHarness
from tests.kubernetes.daemons import NAMESPACE, Kubernetes
from tests.kubernetes.images import PYTHON
from turnout.clusters import Cluster
from turnout.engines.kubernetes import KubernetesCluster, KubernetesSettings
from turnout.engines.remote import RemoteEngine, RemoteSettings, RunnerCall


def left(kubernetes: Kubernetes) -> list[str]:
    """Names of what Turnout has made for jobs and not removed."""
    kinds = ("pods", "secrets", "services", "configmaps")
    found = [item["metadata"] for kind in kinds for item in kubernetes.list(kind)]
    return [one["name"] for one in found if "turnout/gang" in (one.get("labels") or {})]


class KubernetesHarness(RemoteHarness):
    def __init__(self, kubernetes: Kubernetes, base_dir: Path, **settings: Any) -> None:
        super().__init__(base_dir)
        self.kubernetes = kubernetes
        self.host = kubernetes.address
        given = {"kubeconfig": str(kubernetes.kubeconfig), "namespace": NAMESPACE, "image": PYTHON}
        self.settings = KubernetesSettings({}, **{**given, **settings})

    async def __aexit__(self, *error: object) -> None:
        await super().__aexit__(*error)
        await asyncio.to_thread(self.kubernetes.clear, self.settings.namespace)

    def make_engine(self) -> RemoteEngine:
        endpoint = f"http://{self.host}:{self.port}"
        call = RunnerCall(endpoint, "lab", "", "", str(self.archive), self.digest, 60)
        volumes = Cluster(volumes=dict(self.settings.volumes)).volume_directories()
        settings = RemoteSettings("lab", self.paths, call, volumes=volumes, has_volumes=True)
        cluster = KubernetesCluster("lab", self.settings, self.paths.clusters / "lab")
        return RemoteEngine(settings, cluster, self.storage)
