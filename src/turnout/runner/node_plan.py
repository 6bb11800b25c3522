"""The plan of a replica on a node of a cluster, computed once every member of the gang has said where it is.

It is the plan of `runner.plan` in another shape: on a node there is no supervisor, and the runner can show the mounts
at their targets (`sandbox`), or its container does (`mounted`), or the paths are rewritten, as on this machine without
a sandbox. The cluster keeps jobs apart, so there is no other isolation.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from turnout.job import Gang, Launch, Mount
from turnout.job.conventions import convention
from turnout.runner import plan
from turnout.runner.plan import SYSTEM_PATH, WORKSPACE, Layout, Member, ReplicaPlan, Runtime
from turnout.runner.targets import FARM, SHIMS, Bind, check_targets, scratch_paths

COPIES = "copies"
"""The directory with the copies of mounts, in the runner's home."""
METRICS_DIRECTORY, METRICS_NAME = "/var/hypertune", "output.metrics"
INHERITED = (
    "SLURM_*",
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "NVIDIA_*",
    "HIP_VISIBLE_DEVICES",
    "ASCEND_RT_VISIBLE_DEVICES",
    "NEURON_RT_VISIBLE_CORES",
    "ONEAPI_DEVICE_SELECTOR",
    "TPU_VISIBLE_CHIPS",
    "LD_LIBRARY_PATH",
    "MODULEPATH",
    "LOADEDMODULES",
    "USER",
    "LOGNAME",
)
"""What the cluster sets for a job: its allocation, its GPUs, the modules that are loaded."""
_SHIMS = "shims"
_SCRATCH = "space/scratch"


class Node(NamedTuple):
    """What a runner says of its node."""

    home: str
    python: str
    sandbox: bool
    path: str = ""
    """Its PATH."""
    hosts: Mapping[str, str] = MappingProxyType({})
    """The addresses of the gang's nodes by their own names. Gloo and MPI look up the name of the node they run on."""
    mounted: bool = False
    """Its container shows directories of its home at the targets already."""

    @property
    def exact(self) -> bool:
        """Whether the program finds its mounts at their targets."""
        return self.sandbox or self.mounted


class NodeBind(msgspec.Struct, frozen=True):
    source: str
    target: str
    read_only: bool = False


class NodeMount(msgspec.Struct, frozen=True):
    """A mount that the runner copies. Its requests name it by its number."""

    number: int
    directory: str
    """Relative to the runner's home."""
    url: str
    """For messages."""
    fetch: bool
    save: bool
    period: float
    optional: bool
    files: tuple[str, ...]


class NodePlan(msgspec.Struct, frozen=True):
    """The answer to a runner's `arrive`. `dirs`, and the names of `links`, are relative to the runner's home."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    dirs: list[str]
    links: dict[str, str]
    binds: list[NodeBind]
    hosts: str
    mounts: list[NodeMount]
    grace: float
    limit: float | None
    memory: int
    processes: int
    shell: bool
    metrics_file: str
    """A file of the program that the runner sends, relative to its home; empty: none."""
    python_shims: bool = True
    python: str = ""
    """The interpreter that the shims start, as a path on the node; empty: the runner's own."""
    inherit: tuple[str, ...] = INHERITED
    """Variables that the program gets from the runner; a `*` at the end stands for any rest."""


def plan_on_node(
    launch: Launch,
    gang: Gang,
    rank: int,
    node: Node,
    shared: dict[int, str],
    python: str = "",
    processes: int = 4096,
    shared_env: Mapping[str, str] = MappingProxyType({}),
) -> NodePlan:
    """`shared`: by number, the mounts that the node finds in a directory. `python`: the interpreter on the node, if it
    is not the runner's. `shared_env`: variables of all replicas. Raises Impossible.
    """
    binds = [_bind(number, mount, node, shared) for number, mount in enumerate(launch.spec.mounts)]
    scratch = scratch_paths(launch.spec.scratch, binds)
    check_targets([bind.target for bind in binds], scratch)
    name, role = launch.replicas()[rank]
    runtime = Runtime(python or node.python or "python3", f"{node.home}/{_SHIMS}")
    # The conventions count GPUs by what was allocated, and here the cluster allocates them.
    count = role.resources.gpus
    launch = msgspec.structs.replace(launch, gpus={str(name): tuple(range(count))} if count else {})
    sandbox = ("bwrap",) if node.exact else ()
    layout = Layout(sandbox=sandbox, processes=processes, names=not node.mounted)
    maps = plan.gang_maps(launch, gang, node.sandbox and not node.mounted)
    member = Member(launch, gang, rank, role, runtime, binds, scratch, layout, node.home, "", maps)
    replica = plan.plan_member(member)
    env = {name: text for name, text in shared_env.items() if name not in replica.withheld}
    env |= _environment(member, replica, node.path)
    policy = launch.spec.policy
    return NodePlan(
        argv=replica.spill or replica.argv,
        env=env,
        cwd=_cwd(member) if node.exact else replica.cwd,
        dirs=_dirs(member, replica),
        links=replica.links,
        binds=_binds(member) if node.exact else [],
        hosts=_hosts(launch, gang, node) if node.sandbox else "",
        mounts=_mounts(launch, shared),
        grace=policy.grace,
        limit=policy.time_limit,
        memory=role.resources.memory,
        processes=processes,
        shell=launch.spec.opens_shells,
        metrics_file=_metrics_file(member),
        python=python,
    )


def _hosts(launch: Launch, gang: Gang, node: Node) -> str:
    nodes = "".join(f"{address} {name}\n" for name, address in node.hosts.items() if name != "localhost")
    return plan.hosts_file(gang, convention(launch.dialect).domain(launch)) + nodes


def _bind(number: int, mount: Mount, node: Node, shared: dict[int, str]) -> Bind:
    if number in shared:
        return Bind(shared[number], (), mount.target, mount.read_only)
    return Bind(node.home, (COPIES, str(number)), mount.target, mount.read_only)


def _environment(member: Member, replica: ReplicaPlan, path: str) -> dict[str, str]:
    env = {name: member.maps[name] + task for name, task in replica.tasks.items()} | replica.env
    # The cluster says which GPUs the replica has, and who its user is.
    for name in ("CUDA_VISIBLE_DEVICES", "USER", "LOGNAME"):
        if name not in member.role.env:
            env.pop(name, None)
    if "PATH" not in member.role.env:
        shims = SHIMS if member.layout.sandbox else member.runtime.shims
        env["PATH"] = f"{shims}:{path or SYSTEM_PATH}"
    return env


def _cwd(member: Member) -> str:
    return member.launch.spec.working_dir or (member.binds[0].target if member.binds else WORKSPACE)


def _dirs(member: Member, replica: ReplicaPlan) -> list[str]:
    dirs = ["space", "space/work", "space/tmp", _SHIMS, COPIES]
    dirs += [f"{COPIES}/{number}" for number, bind in enumerate(member.binds) if bind.root == member.home]
    return dirs + [name for name in replica.dirs if name not in dirs]


def _binds(member: Member) -> list[NodeBind]:
    home = member.home
    binds = [
        NodeBind(f"{home}/{_SHIMS}", SHIMS, read_only=True),
        NodeBind(f"{home}/space/tmp", "/tmp"),
        NodeBind(f"{home}/space/work", WORKSPACE),
    ]
    binds += [NodeBind(f"{home}/{_SCRATCH}/{n}", path) for n, path in enumerate(member.scratch)]
    return binds + [NodeBind(bind.source, bind.target, bind.read_only) for bind in member.binds]


def _mounts(launch: Launch, shared: dict[int, str]) -> list[NodeMount]:
    return [
        NodeMount(
            number,
            f"{COPIES}/{number}",
            mount.source,
            mount.fetch,
            not mount.read_only,
            mount.period,
            not mount.required,
            mount.files,
        )
        for number, mount in enumerate(launch.spec.mounts)
        if number not in shared
    ]


def _metrics_file(member: Member) -> str:
    """The only file that Turnout reads in a program's directories: see `turnout.search.metrics`."""
    if METRICS_DIRECTORY not in member.scratch:
        return ""
    if member.layout.sandbox:
        return f"{_SCRATCH}/{member.scratch.index(METRICS_DIRECTORY)}/{METRICS_NAME}"
    return f"{FARM}{METRICS_DIRECTORY}/{METRICS_NAME}"
