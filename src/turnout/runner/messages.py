"""The messages to the supervisor that start a gang or restart one of its replicas."""

import msgspec

from turnout.runner.allowance import Allowance

SPILL = 6
"""See ReplicaPlan.spill."""


class ReplicaPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process. Names in `dirs` and `links` are relative to the replica's directory."""

    name: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    millicores: int
    memory: int
    processes: int
    """Limit of processes and threads at a time."""
    cpu: float
    """Cores: read only by a supervisor of an earlier version whose jobs still run."""
    tasks: dict[str, str] = {}
    """Variables whose value is the gang's entry in `maps` followed by this."""
    cwd_mount: int | None = None
    """The number of the mount that contains `cwd`, without a sandbox."""
    dirs: list[str] = []
    links: dict[str, str] = {}
    sandbox: list[str] = []
    """Further options for bubblewrap; left out: no sandbox."""
    passwd: str = ""
    """The sandbox's /etc/passwd, if it differs from the shared one."""
    spill: list[str] = []
    """The command line, if it is too long for bubblewrap. The program in `argv` reads it from descriptor SPILL."""
    shell: bool = False
    """Users may open shells in it."""
    withheld: list[str] = []
    """The variables in `Shared.env` that it does not get."""
    root: int | None = None
    """It runs in an image: the number of its layers in Shared.roots."""
    notice: str = ""
    """A line at the beginning of its log."""


class Shared(msgspec.Struct, frozen=True, omit_defaults=True):
    """What all replicas of a gang share, sent once: in a gang of thousands it is most of the plan."""

    mounts: list[tuple[str, tuple[str, ...]]]
    """Each source: a root, and the names on the way down."""
    stage: str
    """A directory whose subdirectories `0`, `1`… are the sandbox's sources of the mounts."""
    maps: dict[str, str]
    hosts: str
    """The sandbox's /etc/hosts."""
    sandbox: str
    """Bubblewrap and the shared options, each with a NUL at its end."""
    seal: dict[str, str] | None = None
    """The key for the logs, which exists only in memory: see `turnout.vault.log_encrypter`."""
    network: bool = False
    """The gang has a private network."""
    env: dict[str, str] = {}
    """Variables of all replicas. Those of a replica override them."""
    image_sandbox: str = ""
    """As `sandbox`, for replicas in images."""
    roots: list[tuple[str, ...]] = []
    """The layers of each image."""
    podman: list[str] = []
    """Python and the programs of `plan.PodmanTools` that run replicas in images; left out: bubblewrap does."""


class GangPlan(msgspec.Struct, frozen=True, tag_field="t", tag="launch", omit_defaults=True):
    """The message to the supervisor: a whole gang."""

    a: str
    note: dict[str, tuple[str, tuple[int, ...]]]
    """Address and ports of each replica. The supervisor keeps them and returns them to a restarted service."""
    grace: float
    limit: float | None
    log_bytes: int
    shared: Shared
    replicas: list[ReplicaPlan]
    allowance: Allowance | None = None
    """Kept and returned like `note`."""
    user: int = 0
    """The uid of its processes; 0: the supervisor's own, where that was not started as root."""
    disk: dict[str, int] = {}
    """Limit of the workspace and /tmp in bytes, by role; left out: no limit."""
    images: list[str] = []
    """The digests of its images. Kept and returned like `note`."""


class RestartPlan(msgspec.Struct, frozen=True, tag_field="t", tag="again"):
    """The message to restart one replica of a launched gang, for the `restarts`th time."""

    a: str
    restarts: int
    shared: Shared
    replica: ReplicaPlan
