"""What a replica's process is to be, worked out without doing anything: a value that can be printed and tested.

In the sandbox a replica finds its mounts at exactly their targets and its own space at `/workspace` (which is also
its HOME) and `/tmp`. Without one the host's paths cannot be taken, so the same tree is laid out as links below
`tmp/root` in the replica's directory, and arguments and variables that name a mount's target are rewritten to the real
directory. In both, TURNOUT_ROOT is what to put before a target and TURNOUT_MOUNT_0… are where the mounts are.

The working directory is the spec's, else the first mount, else the replica's own space.
"""

import posixpath
from typing import NamedTuple

import msgspec

from turnout.job import Gang, Launch, Peer, Role
from turnout.job.topology import variables
from turnout.paths import Paths

PYTHONS = frozenset({"python", "python2", "python3"})
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHIMS = "/opt/turnout/bin"
WORKSPACE = "/workspace"
OUTLETS = "/run/out"
"""Where the sandbox's /dev/stdout and /dev/stderr lead to."""

# Among what goes with the workspace.
_FARM = "tmp/root"

SPILL = 6
# Bubblewrap takes 9000 in all, its own among them.
_MOST_ARGUMENTS = 8000
_UNSPILL = """import os, sys
with open({fd}) as file:
    argv = file.read().split(chr(0))
try:
    os.execvp(argv[0], argv)
except OSError as error:
    sys.exit(str(error))
"""

# Where a mount would hide what the sandbox itself is made of.
_TAKEN = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/proc",
    "/sys",
    "/dev",
    SHIMS,
)


class Runtime(NamedTuple):
    """An interpreter, the directory of program names that leads to it, and what it needs to see of the host."""

    python: str
    shims: str
    binds: tuple[tuple[str, str], ...] = ()
    """(directory here, path in the sandbox), read-only."""


class Bind(NamedTuple):
    source: str
    target: str
    read_only: bool


class Layout(NamedTuple):
    """What is the same for every replica of an engine."""

    sandbox: tuple[str, ...] = ()
    """Bubblewrap and its options that are always the same; empty: no sandbox."""
    processes: int = 4096
    log_bytes: int = 1 << 30
    gpus: bool = False
    """There are GPUs here, so who gets none is told so."""
    gpu_devices: tuple[str, ...] = ()
    """Device files that a replica with a GPU needs besides the GPU's own; empty: they are simulated."""
    user: str = ""


class ReplicaPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process. Names in `dirs` and `links` are relative to the replica's directory, which has `work` and `tmp`."""

    name: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    cpu: float
    memory: int
    processes: int
    """How many processes and threads it may have at once."""
    dirs: list[str] = []
    links: dict[str, str] = {}
    hosts: str = ""
    """The sandbox's /etc/hosts."""
    sandbox: list[str] = []
    """Bubblewrap and its options; left out: none."""
    spill: list[str] = []
    """The real command line where it is too long for bubblewrap: the program in `argv` finds it at descriptor SPILL."""


class GangPlan(msgspec.Struct, frozen=True, tag_field="t", tag="launch"):
    """What the keeper is told: the whole gang in one message."""

    a: str
    note: dict[str, tuple[str, tuple[int, ...]]]
    """Each replica's address and ports: the keeper keeps it, and gives it back after a restart of the service."""
    grace: float
    limit: float | None
    log_bytes: int
    replicas: list[ReplicaPlan]


class _Member(NamedTuple):
    """All that a replica's plan follows from."""

    launch: Launch
    gang: Gang
    rank: int
    role: Role
    runtime: Runtime
    binds: list[Bind]
    layout: Layout
    home: str
    """The replica's directory."""
    hosts: str

    @property
    def me(self) -> Peer:
        return self.gang[self.rank]

    @property
    def gpus(self) -> tuple[int, ...]:
        return self.launch.gpus.get(str(self.me.name), ())


class Impossible(Exception):
    """This launch cannot be planned; the message says why."""


def plan_gang(
    launch: Launch, gang: Gang, runtimes: dict[str, Runtime], binds: list[Bind], layout: Layout, paths: Paths
) -> GangPlan:
    """`runtimes` by the name that roles ask for. Raises Impossible."""
    for bind in binds:
        _check_target(bind.target)
    hosts = _hosts(gang) if layout.sandbox else ""
    replicas: list[ReplicaPlan] = []
    for rank, (name, role) in enumerate(launch.replicas()):
        home = str(paths.replica(launch.attempt, name))
        runtime = runtimes[role.program.runtime]
        replicas.append(_plan(_Member(launch, gang, rank, role, runtime, binds, layout, home, hosts)))
    policy = launch.spec.policy
    note = {str(peer.name): (peer.address, peer.ports) for peer in gang}
    return GangPlan(str(launch.attempt), note, policy.grace, policy.time_limit, layout.log_bytes, replicas)


def _check_target(target: str) -> None:
    if not target.startswith("/") or posixpath.normpath(target) != target.rstrip("/"):
        raise Impossible(f"mount target {target!r} must be an absolute path without . and ..")
    if any(target == taken or target.startswith(taken + "/") for taken in _TAKEN):
        raise Impossible(
            f"mount target {target} lies in a directory of the system; choose another, such as /data"
        )


def _hosts(gang: Gang) -> str:
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
    return "\n".join(lines + [f"{peer.address} {peer.host}" for peer in gang]) + "\n"


def _plan(member: _Member) -> ReplicaPlan:
    argv = list(member.role.program.argv)
    if not argv:
        raise Impossible(f"role {member.role.name} has no command")
    if argv[0] in PYTHONS:
        argv[0] = member.runtime.python
    return _sandboxed(member, argv) if member.layout.sandbox else _bare(member, argv)


def _sandboxed(member: _Member, argv: list[str]) -> ReplicaPlan:
    home, binds, layout = member.home, member.binds, member.layout
    options = [*layout.sandbox, "--hostname", member.me.host]
    options += ("--ro-bind", f"{home}/box/out", OUTLETS)
    options += ("--bind", f"{home}/tmp", "/tmp", "--bind", f"{home}/work", WORKSPACE)
    for source, target in ((member.runtime.shims, SHIMS), *member.runtime.binds):
        options += ("--ro-bind", source, target)
    # Outer directories first, so that one mount may lie within another.
    for bind in sorted(binds, key=lambda bind: bind.target.count("/")):
        options += ("--ro-bind" if bind.read_only else "--bind", bind.source, bind.target)
    if layout.gpu_devices:
        for number in member.gpus:
            options += ("--dev-bind", f"/dev/nvidia{number}", f"/dev/nvidia{number}")
        for device in layout.gpu_devices if member.gpus else ():
            options += ("--dev-bind", device, device)
    spill: list[str] = []
    if len(argv) > _MOST_ARGUMENTS:
        argv, spill = [member.runtime.python, "-I", "-S", "-c", _UNSPILL.format(fd=SPILL)], argv
    cwd = member.launch.spec.working_dir or (binds[0].target if binds else WORKSPACE)
    options += ("--chdir", cwd)
    own = {"PATH": f"{SHIMS}:{SYSTEM_PATH}", "HOME": WORKSPACE, "PWD": cwd, "TURNOUT_ROOT": ""}
    own |= {f"TURNOUT_MOUNT_{number}": bind.target for number, bind in enumerate(binds)}
    return _replica(member, argv, own, "/", hosts=member.hosts, sandbox=options, spill=spill)


def _bare(member: _Member, argv: list[str]) -> ReplicaPlan:
    home, binds = member.home, member.binds
    moved = {bind.target.rstrip("/"): bind.source for bind in binds}
    own = {
        "PATH": f"{member.runtime.shims}:{SYSTEM_PATH}",
        "HOME": f"{home}/work",
        "TMPDIR": f"{home}/tmp",
        "TURNOUT_ROOT": f"{home}/{_FARM}",
    }
    own |= {f"TURNOUT_MOUNT_{number}": bind.source for number, bind in enumerate(binds)}
    wanted = member.launch.spec.working_dir
    if wanted:
        cwd = _move(wanted, moved)
        cwd = cwd if cwd != wanted else f"{home}/{_FARM}{posixpath.normpath(wanted)}"
    else:
        cwd = binds[0].source if binds else f"{home}/work"
    dirs, links = _farm(
        binds, f"{_FARM}{posixpath.normpath(wanted)}" if cwd.startswith(f"{home}/{_FARM}/") else ""
    )
    argv = [_move(text, moved) for text in argv]
    env = {name: _move(text, moved) for name, text in member.role.env.items()}
    return _replica(member, argv, own, cwd, dirs=dirs, links=links, env=env)


def _farm(binds: list[Bind], extra: str) -> tuple[list[str], dict[str, str]]:
    """Directories, parents first, and links that show the mounts as the sandbox would. One within another cannot be."""
    links: dict[str, str] = {}
    dirs: dict[str, None] = {}
    for bind in sorted(binds, key=lambda bind: bind.target.count("/")):
        name = _FARM + bind.target.rstrip("/")
        if not any(name.startswith(outer + "/") for outer in links):
            dirs |= dict.fromkeys(_parents(name))
            links[name] = bind.source
    if extra:
        dirs |= dict.fromkeys([*_parents(extra), extra])
    return list(dirs), links


def _parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:length]) for length in range(2, len(parts))]


def _move(text: str, moved: dict[str, str]) -> str:
    """`/data/x` and `--dir=/data/x` with the mount's real directory for its target; anything else as it is."""
    flag, equals, path = text.partition("=") if text.startswith("-") else ("", "", text)
    for target, source in moved.items():
        if path == target or path.startswith(target + "/"):
            return flag + equals + source + path[len(target) :]
    return text


def _replica(
    member: _Member,
    argv: list[str],
    own: dict[str, str],
    cwd: str,
    *,
    dirs: list[str] | None = None,
    links: dict[str, str] | None = None,
    hosts: str = "",
    sandbox: list[str] | None = None,
    spill: list[str] | None = None,
    env: dict[str, str] | None = None,
) -> ReplicaPlan:
    resources = member.role.resources
    user = member.role.env if env is None else env
    environment = (
        own | _environment(member) | user | {"TURNOUT_REPLICA": f"{member.launch.attempt}/{member.me.name}"}
    )
    return ReplicaPlan(
        name=str(member.me.name),
        argv=argv,
        env=environment,
        cwd=cwd,
        dirs=dirs or [],
        links=links or {},
        hosts=hosts,
        sandbox=sandbox or [],
        spill=spill or [],
        cpu=resources.cpu,
        memory=resources.memory,
        processes=member.layout.processes,
    )


def _environment(member: _Member) -> dict[str, str]:
    """What every replica is told, whatever it runs in; the user's own variables come on top."""
    env = {
        "USER": member.layout.user,
        "LOGNAME": member.layout.user,
        "LANG": "C.UTF-8",
        "HOSTNAME": member.me.host,
        "PYTHONUNBUFFERED": "1",
        "TURNOUT_JOB": str(member.launch.attempt.job),
    }
    env |= variables(member.launch, member.gang, member.rank)
    if member.gpus or member.layout.gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, member.gpus))
    return env
