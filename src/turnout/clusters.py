"""The settings in `[clusters.X]` and `[runner]`: which engine runs the jobs of a cluster, and how nodes reach us."""

import re
from urllib.parse import urlsplit

import msgspec

from turnout.errors import Misconfigured

ENGINES = ("local", "slurm")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_OF_SLURM = ("command", "partition", "account", "qos", "constraint", "options", "time", "runner_directory")
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
        known = " and ".join(ENGINES)
        raise Misconfigured(f"{table} engine = {cluster.engine!r} is not known; there are {known}")
    useless = [] if cluster.engine == "slurm" else [field for field in _OF_SLURM if _is_set(cluster, field)]
    if cluster.engine == "local":
        useless += [field for field in _OF_REMOTE if _is_set(cluster, field)]
    if useless:
        raise Misconfigured(f"{table} {useless[0]} has no effect with engine = {cluster.engine!r}")
    if cluster.engine != "local" and not _NAME.fullmatch(name):
        raise Misconfigured(
            f"{table}: the name of a cluster has letters, digits, `.`, `_` and `-`, at most 63"
        )
    if cluster.pending < 1:
        raise Misconfigured(f"{table} pending must be at least 1")
    if cluster.gang_seconds <= 0 or cluster.time <= 0:
        raise Misconfigured(f"{table} gang_seconds and time must be more than 0")
    for path in (*cluster.shared, *filter(None, [cluster.runner_directory])):
        if not path.startswith("/") or path.rstrip("/") == "" or ".." in path.split("/"):
            raise Misconfigured(f"{table}: {path!r} is not the absolute path of a directory that nodes share")


def _is_set(cluster: Cluster, field: str) -> bool:
    return getattr(cluster, field) != getattr(Cluster(), field)
