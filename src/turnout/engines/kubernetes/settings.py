"""What the cluster takes from `[clusters.X]` with `engine = "kubernetes"`."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from turnout.clusters import Cluster


class KubernetesSettings(NamedTuple):
    environment: Mapping[str, str]
    """Of the service. Commands that get credentials need it."""
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    """Empty: that of the context."""
    service_account: str = ""
    """Of the pods; empty: the namespace's default."""
    gang: str = "auto"
    queue: str = ""
    scheduler: str = ""
    gang_seconds: float = 600
    node_selectors: Mapping[str, Mapping[str, str]] = {}
    """By accelerator or machine type; `*`: for all."""
    tolerations: tuple[Mapping[str, Any], ...] = ()
    priority_class: str = ""
    image: str = ""
    """For jobs that name none."""
    images: Mapping[str, str] = {}
    """By runtime."""
    image_pull_policy: str = ""
    image_pull_secrets: tuple[str, ...] = ()
    runner_image: str = ""
    """Brings a Python to images that have none."""
    volumes: Mapping[str, str] = {}
    """Claims by the beginning of the sources that are in them."""
    run_as_user: int = 1000
    """0: the image's own user, root too."""
    gpu_resource: str = "nvidia.com/gpu"
    names: str = "auto"
    """Which jobs have a Service, so that their replicas find each other by host name: see `service_name`."""
    cluster_domain: str = "cluster.local"
    python: str = "python3"

    @staticmethod
    def of(cluster: Cluster, environment: Mapping[str, str]) -> "KubernetesSettings":
        return KubernetesSettings(
            environment=environment,
            kubeconfig=cluster.kubeconfig,
            context=cluster.context,
            namespace=cluster.namespace,
            service_account=cluster.service_account,
            gang=cluster.gang,
            queue=cluster.queue,
            scheduler=cluster.scheduler,
            gang_seconds=cluster.gang_seconds,
            node_selectors=cluster.node_selectors,
            tolerations=tuple(cluster.tolerations),
            priority_class=cluster.priority_class,
            image=cluster.image,
            images=cluster.images,
            image_pull_policy=cluster.image_pull_policy,
            image_pull_secrets=tuple(cluster.image_pull_secrets),
            runner_image=cluster.runner_image,
            volumes=cluster.volumes,
            run_as_user=cluster.run_as_user,
            gpu_resource=cluster.gpu_resource,
            names=cluster.names,
            cluster_domain=cluster.cluster_domain,
            python=cluster.python,
        )
