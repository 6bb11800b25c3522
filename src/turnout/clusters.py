"""The settings in `[clusters.X]` and `[runner]`: which engine runs the jobs of a cluster, and how nodes reach us."""

import re
from typing import Any
from urllib.parse import urlsplit

import msgspec

from turnout.errors import Misconfigured

ENGINES = ("local", "slurm", "kubernetes", "ray")
GANGS = ("auto", "turnout", "kueue", "volcano", "coscheduling")
NAMES = ("auto", "always", "never")
PULL_POLICIES = ("", "Always", "IfNotPresent", "Never")
VOLUMES = "/turnout/volumes"
"""Where pods find the claims of `volumes`."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_OF_SLURM = ("command", "partition", "account", "qos", "constraint", "options", "time", "runner_directory")
_OF_KUBERNETES = (
    "kubeconfig", "context", "namespace", "service_account", "gang", "queue", "scheduler", "node_selectors",
    "tolerations", "priority_class", "image", "images", "image_pull_policy", "image_pull_secrets", "runner_image",
    "volumes", "run_as_user", "gpu_resource", "names", "cluster_domain",
)  # fmt: skip
_OF_RAY = ("address", "spread", "resources", "accelerator", "accelerator_type")
_OF_REMOTE = ("pending", "gang_seconds", "shared", "python")


class Cluster(msgspec.Struct, forbid_unknown_fields=True):
    engine: str = "local"

    # For every engine but `local`.
    pending: int = 50
    """The most gangs that wait in the cluster's own queue at a time. The others wait in Turnout's."""
    gang_seconds: float = 600
    """How long the replicas of a job wait for each other, once the first has started on its node."""
    shared: list[str] = []
    """Directories that the nodes and this machine see at the same path. `file://` below them is used as it is."""
    python: str = "python3"
    """The interpreter on the nodes: at least Python 3.8."""

    # For `slurm`.
    command: list[str] = []
    """What comes before each Slurm command, such as `["ssh", "login1"]`."""
    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    options: list[str] = []
    """Further options of sbatch."""
    time: float = 7 * 24 * 60
    """Minutes: Slurm's time limit for jobs that have none of their own."""
    runner_directory: str = ""
    """A shared directory for the runner. Empty: nodes fetch it from the service."""

    # For `kubernetes`.
    kubeconfig: str = ""
    """The path of a kubeconfig file. Empty: that of the pod or user that the service runs as."""
    context: str = ""
    namespace: str = ""
    service_account: str = ""
    """Of the jobs' pods. Empty: the namespace's default, without a token in the pod."""
    gang: str = "auto"
    """What places the replicas of a job all at once: `auto` uses what the cluster has, or `turnout`."""
    queue: str = ""
    """The queue of Kueue or Volcano."""
    scheduler: str = ""
    """`schedulerName` of the pods."""
    node_selectors: dict[str, dict[str, str]] = {}
    """Labels of nodes, by accelerator or machine type; `*`: for all jobs."""
    tolerations: list[dict[str, Any]] = []
    priority_class: str = ""
    image: str = ""
    """The image of jobs that name none."""
    images: dict[str, str] = {}
    """Images by runtime. They win over the image that the job names."""
    image_pull_policy: str = ""
    image_pull_secrets: list[str] = []
    runner_image: str = ""
    """An image with Python, for jobs whose image has none."""
    volumes: dict[str, str] = {}
    """Persistent volume claims by the beginning of the sources that are in them, such as `nfs://10.0.0.9/data`."""
    run_as_user: int = 1000
    """The user id of programs. 0: the image's own user, root too."""
    gpu_resource: str = "nvidia.com/gpu"
    names: str = "auto"
    """Which jobs have a headless Service, so that their replicas find each other by host name. `auto`: those of clouds
    whose replicas do."""
    cluster_domain: str = "cluster.local"

    # For `ray`.
    address: str = ""
    """`<host>:<port>` of the head. Empty: the Ray of which this machine is a node."""
    spread: bool = False
    """Whether each replica needs a node of its own."""
    resources: dict[str, float] = {}
    """Custom resources that each replica takes."""
    accelerator: str = "GPU"
    """Ray's name for the accelerators of its nodes."""
    accelerator_type: str = ""
    """Ray's type of the accelerators that replicas need, such as `A100`."""

    def volume_directories(self) -> dict[str, str]:
        """Where pods find the sources that are in a claim, by their beginning."""
        return {source.rstrip("/"): f"{VOLUMES}/{number}" for number, source in enumerate(self.volumes)}


class RunnerSettings(msgspec.Struct, forbid_unknown_fields=True):
    url: str = ""
    """The URL at which nodes reach this service. Empty: the address that the service listens on."""
    patience: float = 86_400
    """Seconds for which a runner goes on while it cannot reach the service."""


def check(clusters: dict[str, Cluster], runner: RunnerSettings) -> None:
    """Raises Misconfigured."""
    for name, cluster in clusters.items():
        _check(name, cluster)
    url = urlsplit(runner.url)
    if runner.url and (url.scheme not in ("http", "https") or not url.hostname or url.path.strip("/")):
        raise Misconfigured(
            f"[runner] url = {runner.url!r} is not an address such as https://turnout.example.org:8470"
        )
    if runner.patience <= 0:
        raise Misconfigured("[runner] patience must be more than 0")


def _check(name: str, cluster: Cluster) -> None:
    table = f"[clusters.{name}]"
    if cluster.engine not in ENGINES:
        known = ", ".join(ENGINES)
        raise Misconfigured(f"{table} engine = {cluster.engine!r} is not known; there are {known}")
    useless = [] if cluster.engine == "slurm" else [field for field in _OF_SLURM if _is_set(cluster, field)]
    if cluster.engine != "kubernetes":
        useless += [field for field in _OF_KUBERNETES if _is_set(cluster, field)]
    useless += [] if cluster.engine == "ray" else [field for field in _OF_RAY if _is_set(cluster, field)]
    if cluster.engine == "local":
        useless += [field for field in _OF_REMOTE if _is_set(cluster, field)]
    if useless:
        raise Misconfigured(f"{table} {useless[0]} has no effect with engine = {cluster.engine!r}")
    if cluster.engine != "local" and not _NAME.fullmatch(name):
        raise Misconfigured(
            f"{table}: the name of a cluster has letters, digits, `.`, `_` and `-`, at most 63"
        )
    _check_kubernetes(table, cluster)
    _check_ray(table, cluster)
    if cluster.pending < 1:
        raise Misconfigured(f"{table} pending must be at least 1")
    if cluster.gang_seconds <= 0 or cluster.time <= 0:
        raise Misconfigured(f"{table} gang_seconds and time must be more than 0")
    for path in (*cluster.shared, *filter(None, [cluster.runner_directory])):
        if not path.startswith("/") or path.rstrip("/") == "" or ".." in path.split("/"):
            raise Misconfigured(f"{table}: {path!r} is not the absolute path of a directory that nodes share")


def _check_kubernetes(table: str, cluster: Cluster) -> None:
    if cluster.engine == "kubernetes" and cluster.shared:
        raise Misconfigured(f"{table} shared has no effect with engine = 'kubernetes'; use volumes")
    for field, known in (("gang", GANGS), ("names", NAMES), ("image_pull_policy", PULL_POLICIES)):
        if getattr(cluster, field) not in known:
            names = ", ".join(filter(None, known))
            raise Misconfigured(
                f"{table} {field} = {getattr(cluster, field)!r} is not known; there are {names}"
            )
    if cluster.gang == "kueue" and not cluster.queue:
        raise Misconfigured(f"{table} gang = 'kueue' needs queue, the name of a LocalQueue")
    if cluster.run_as_user < 0:
        raise Misconfigured(f"{table} run_as_user must be a user id, or 0")
    for source in cluster.volumes:
        scheme, _, rest = source.partition("://")
        if scheme not in ("nfs", "file") or not rest or ".." in rest.split("/"):
            raise Misconfigured(f"{table} volumes: {source!r} must begin with nfs:// or file://")


def _check_ray(table: str, cluster: Cluster) -> None:
    host, _, port = cluster.address.rpartition(":")
    if cluster.address and (not host or "/" in host or not port.isdigit()):
        raise Misconfigured(f"{table} address = {cluster.address!r} is not <host>:<port> of a head of Ray")
    for name, value in cluster.resources.items():
        if value <= 0 or name in ("CPU", "GPU", "memory"):
            raise Misconfigured(f"{table} resources: {name} must be a custom resource of Ray and more than 0")


def _is_set(cluster: Cluster, field: str) -> bool:
    return getattr(cluster, field) != getattr(Cluster(), field)
