"""What the cluster takes from `[clusters.X]` with `engine = "slurm"`."""

from collections.abc import Mapping
from typing import NamedTuple

from turnout.clusters import Cluster


class SlurmSettings(NamedTuple):
    environment: Mapping[str, str]
    """Of Slurm's commands: that of the service. What is in it reaches the jobs, except for `TURNOUT_*`."""
    command: tuple[str, ...] = ()
    """What comes before each Slurm command, such as `ssh login1`. It must run its last argument by a shell."""
    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    options: tuple[str, ...] = ()
    """Further options of sbatch. They win over the others."""
    time: float = 7 * 24 * 60
    """Minutes: the time limit of jobs that have none of their own."""
    shared: tuple[str, ...] = ()
    """Directories that the nodes and this machine see at the same path."""
    python: str = "python3"
    """The interpreter on the nodes."""
    runner_directory: str = ""
    """A shared directory for the runner. Empty: nodes fetch it from the service."""

    @staticmethod
    def of(cluster: Cluster, environment: Mapping[str, str]) -> "SlurmSettings":
        return SlurmSettings(
            environment=environment,
            command=tuple(cluster.command),
            partition=cluster.partition,
            account=cluster.account,
            qos=cluster.qos,
            constraint=cluster.constraint,
            options=tuple(cluster.options),
            time=cluster.time,
            shared=tuple(cluster.shared),
            python=cluster.python,
            runner_directory=cluster.runner_directory,
        )

    def is_shared(self, path: str) -> bool:
        """Whether the nodes see this path too."""
        return any(path == top.rstrip("/") or path.startswith(top.rstrip("/") + "/") for top in self.shared)
