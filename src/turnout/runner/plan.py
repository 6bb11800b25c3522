"""What a replica's process is to be, worked out without doing anything: a value that can be printed and tested.

In the sandbox a replica finds its mounts at exactly their targets, its scratch directories likewise, and its own space
at `/workspace` (which is also its HOME) and `/tmp`. Without one the host's paths cannot be taken, so the same tree is
laid out below `tmp/root` in the replica's directory, with links for the mounts, and arguments and variables that name
a mount's target or a scratch directory are rewritten to the real one. In both, TURNOUT_ROOT is what to put before a
target and TURNOUT_MOUNT_0… are where the mounts are.

A mount's source lies where other jobs may write, and can be swapped for a link at any time. So the sandbox is never
given its path: the keeper goes down to it without following links and shows it at a place of its own, in a mount
namespace that only this replica has. Without a sandbox nothing keeps jobs apart, and the links are a convenience.

The working directory is the spec's, else the first mount, else the replica's own space.
"""

import posixpath
from typing import NamedTuple

import msgspec

from turnout.job import Gang, Launch, Peer, ReplicaName, Role
from turnout.job.conventions import convention
from turnout.job.expand import expand_late
from turnout.job.topology import DASHBOARD_PORT, TF_CONFIG, maps, tasks, variables
from turnout.paths import Paths
from turnout.runner.allowance import Allowance, allowance
from turnout.runner.targets import (
    FARM,
    SHIMS,
    Bind,
    Impossible,
    check_targets,
    farm,
    move,
    scratch_paths,
    within,
)

PYTHONS = frozenset({"python", "python2", "python3"})
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
WORKSPACE = "/workspace"
OUTLETS = "/run/out"
"""Where the sandbox's /dev/stdout and /dev/stderr lead to."""

# Among what goes with the workspace.
_SCRATCH = "scratch"

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


class Runtime(NamedTuple):
    """An interpreter, the directory of program names that leads to it, and what it needs to see of the host."""

    python: str
    shims: str
    binds: tuple[tuple[str, str], ...] = ()
    """(directory here, path in the sandbox), read-only."""


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
    group: int = 0
    """The user's name, and the id of its group."""


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
    tasks: dict[str, str] = {}
    """Variables that are the gang's `maps` with this at the end."""
    cwd_mount: int | None = None
    """The mount that `cwd` is in, where there is no sandbox."""
    dirs: list[str] = []
    links: dict[str, str] = {}
    sandbox: list[str] = []
    """Bubblewrap's options besides those that are the same for all; left out: no sandbox."""
    passwd: str = ""
    """The sandbox's /etc/passwd, where it is not the one that is the same for all."""
    spill: list[str] = []
    """The real command line where it is too long for bubblewrap: the program in `argv` finds it at descriptor SPILL."""
    shell: bool = False
    """People may open shells in it."""


class Shared(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is the same for all replicas of a gang, said once: in a gang of thousands it is most of it."""

    mounts: list[tuple[str, tuple[str, ...]]]
    """Each source: a root, and the way down from there."""
    stage: str
    """A directory in which `0`, `1`… are where the sandbox looks for the mounts."""
    maps: dict[str, str]
    hosts: str
    """The sandbox's /etc/hosts."""
    sandbox: str
    """Bubblewrap and the options that are the same for every replica, with a NUL behind each."""
    seal: dict[str, str] | None = None
    """The key that the logs are sealed with, which only ever lies in memory: see `turnout.vault.pump`."""


class GangPlan(msgspec.Struct, frozen=True, tag_field="t", tag="launch", omit_defaults=True):
    """What the keeper is told: the whole gang in one message."""

    a: str
    note: dict[str, tuple[str, tuple[int, ...]]]
    """Each replica's address and ports: the keeper keeps it, and gives it back after a restart of the service."""
    grace: float
    limit: float | None
    log_bytes: int
    shared: Shared
    replicas: list[ReplicaPlan]
    allowance: Allowance | None = None
    """Likewise kept and given back."""


class Again(msgspec.Struct, frozen=True, tag_field="t", tag="again"):
    """One member of a gang that was launched before, for the `restarts`th time."""

    a: str
    restarts: int
    shared: Shared
    replica: ReplicaPlan


class _Member(NamedTuple):
    """All that a replica's plan follows from."""

    launch: Launch
    gang: Gang
    rank: int
    role: Role
    runtime: Runtime
    binds: list[Bind]
    scratch: list[str]
    layout: Layout
    home: str
    """The replica's directory."""
    stage: str
    maps: dict[str, str]
    """See Shared."""

    @property
    def me(self) -> Peer:
        return self.gang[self.rank]

    @property
    def gpus(self) -> tuple[int, ...]:
        return self.launch.gpus.get(str(self.me.name), ())


def plan_gang(
    launch: Launch,
    gang: Gang,
    runtimes: dict[str, Runtime],
    binds: list[Bind],
    layout: Layout,
    paths: Paths,
    seal: dict[str, str] | None = None,
    only: ReplicaName | None = None,
) -> GangPlan:
    """`runtimes` by the name that roles ask for. `seal`: see Shared. `only`: of nobody else. Raises Impossible."""
    scratch = scratch_paths(launch.spec.scratch, binds) if launch.spec.scratch else []
    check_targets([bind.target for bind in binds], scratch)
    stage = str(paths.stage)
    boxed = bool(layout.sandbox)
    hosts = _hosts(gang, convention(launch.dialect).domain(launch)) if boxed else ""
    told = _maps(launch, gang, boxed)
    replicas: list[ReplicaPlan] = []
    for rank, (name, role) in enumerate(launch.replicas()):
        if only not in (None, name):
            continue
        home = paths.home(launch.attempt, name)
        runtime = runtimes[role.program.runtime]
        replicas.append(
            _plan(_Member(launch, gang, rank, role, runtime, binds, scratch, layout, home, stage, told))
        )
    policy = launch.spec.policy
    note = {str(peer.name): (peer.address, peer.ports) for peer in gang}
    sandbox = "".join(option + "\0" for option in layout.sandbox)
    mounts = [(bind.root, bind.parts) for bind in binds]
    shared = Shared(mounts, stage, told, hosts, sandbox, seal)
    return GangPlan(
        str(launch.attempt),
        note,
        policy.grace,
        policy.time_limit,
        layout.log_bytes,
        shared,
        replicas,
        allowance(launch),
    )


def _maps(launch: Launch, gang: Gang, boxed: bool) -> dict[str, str]:
    own = convention(launch.dialect)
    told = maps(launch, gang, boxed and own.by_name) | own.maps(launch, gang, boxed)
    if len(gang) == 1 and not own.ranks_one:
        del told[TF_CONFIG]
    return told


def _hosts(gang: Gang, domain: str) -> str:
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
    if domain:
        lines += [f"{peer.address} {peer.host} {peer.host}.{domain}" for peer in gang]
    else:
        lines += [f"{peer.address} {peer.host}" for peer in gang]
    return "\n".join(lines) + "\n"


def _plan(member: _Member) -> ReplicaPlan:
    argv = list(member.role.program.argv)
    if not argv:
        raise Impossible(f"role {member.role.name} has no command")
    if argv[0] in PYTHONS:
        argv[0] = member.runtime.python
    return _sandboxed(member, argv) if member.layout.sandbox else _bare(member, argv)


def _sandboxed(member: _Member, argv: list[str]) -> ReplicaPlan:
    home, binds, layout = member.home, member.binds, member.layout
    options = ["--hostname", member.me.host]
    options += ("--ro-bind", f"{home}/box/out", OUTLETS)
    options += ("--bind", f"{home}/tmp", "/tmp", "--bind", f"{home}/work", WORKSPACE)
    inner = [bind for bind in member.runtime.binds if any(within(bind[1], path) for path in member.scratch)]
    for source, target in ((member.runtime.shims, SHIMS), *member.runtime.binds):
        options += ("--ro-bind", source, target) if (source, target) not in inner else ()
    dirs: list[str] = []
    for number, path in enumerate(member.scratch):
        # Mounts within come after it: their mount points are made in there before any process of the job can.
        dirs += () if dirs else (_SCRATCH,)
        dirs.append(f"{_SCRATCH}/{number}")
        options += ("--bind", f"{home}/{_SCRATCH}/{number}", path)
    for source, target in inner:
        options += ("--ro-bind", source, target)
    for number, bind in enumerate(binds):
        options += ("--ro-bind" if bind.read_only else "--bind", f"{member.stage}/{number}", bind.target)
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
    own |= convention(member.launch.dialect).variables(member.launch, member.gang, member.rank)
    passwd = ""
    if member.role.program.user is not None:
        options += ("--uid", str(member.role.program.user))
        passwd = _passwd(member, own["HOME"])
    return _replica(member, argv, own, "/", dirs=dirs, sandbox=options, spill=spill, passwd=passwd)


def _passwd(member: _Member, home: str) -> str:
    uid = member.role.program.user
    lines = [f"{_user_name(member)}:x:{uid}:{member.layout.group}::{home}:/bin/sh"]
    lines += ["root:x:0:0:root:/root:/usr/sbin/nologin"] if uid else []
    return "\n".join([*lines, "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin"]) + "\n"


def _user_name(member: _Member) -> str:
    uid = member.role.program.user
    if uid is None or not member.layout.sandbox:
        return member.layout.user
    return (convention(member.launch.dialect).user or member.layout.user) if uid else "root"


def _bare(member: _Member, argv: list[str]) -> ReplicaPlan:
    home, binds = member.home, member.binds
    moved = _moved(member)
    own = {
        "PATH": f"{member.runtime.shims}:{SYSTEM_PATH}",
        "HOME": f"{home}/work",
        "TMPDIR": f"{home}/tmp",
        "TURNOUT_ROOT": f"{home}/{FARM}",
    }
    own |= {f"TURNOUT_MOUNT_{number}": bind.source for number, bind in enumerate(binds)}
    told = convention(member.launch.dialect).variables(member.launch, member.gang, member.rank)
    own |= {name: move(text, moved) for name, text in told.items()}
    wanted = member.launch.spec.working_dir
    if wanted:
        cwd = move(wanted, moved)
        cwd = cwd if cwd != wanted else f"{home}/{FARM}{posixpath.normpath(wanted)}"
    else:
        cwd = binds[0].source if binds else f"{home}/work"
    extra = [f"{FARM}{path}" for path in member.scratch]
    if cwd.startswith(f"{home}/{FARM}/"):
        extra.append(cwd.removeprefix(f"{home}/"))
    dirs, links = farm(binds, extra)
    mount = next((number for number, bind in enumerate(binds) if within(cwd, bind.source)), None)
    argv = [move(text, moved) for text in argv]
    env = {name: move(text, moved) for name, text in member.role.env.items()}
    return _replica(member, argv, own, cwd, cwd_mount=mount, dirs=dirs, links=links, env=env)


def _moved(member: _Member) -> dict[str, str]:
    """Where the targets really are. The inner ones first, so that the first that fits is the right one."""
    moved = {bind.target.rstrip("/"): bind.source for bind in member.binds}
    if not member.scratch:
        return moved
    moved |= {path: f"{member.home}/{FARM}{path}" for path in member.scratch}
    return dict(sorted(moved.items(), key=lambda item: -len(item[0])))


def _replica(
    member: _Member,
    argv: list[str],
    own: dict[str, str],
    cwd: str,
    *,
    cwd_mount: int | None = None,
    dirs: list[str] | None = None,
    links: dict[str, str] | None = None,
    sandbox: list[str] | None = None,
    spill: list[str] | None = None,
    passwd: str = "",
    env: dict[str, str] | None = None,
) -> ReplicaPlan:
    resources = member.role.resources
    user = member.role.env if env is None else env
    service = own | _environment(member)
    completed = tasks(member.launch, member.me)
    completed = {name: completed.get(name, "") for name in member.maps}
    if member.role.late:
        known = service | {name: member.maps[name] + task for name, task in completed.items()}
        user = expand_late(user, member.role.late, known)
    marker = {"TURNOUT_REPLICA": f"{member.launch.attempt}/{member.me.name}"}
    return ReplicaPlan(
        name=str(member.me.name),
        argv=argv,
        env=service | user | marker,
        cwd=cwd,
        tasks={name: task for name, task in completed.items() if name not in user},
        cwd_mount=cwd_mount,
        dirs=dirs or [],
        links=links or {},
        sandbox=sandbox or [],
        spill=spill or [],
        passwd=passwd,
        shell=member.launch.spec.opens_shells,
        cpu=resources.cpu,
        memory=resources.memory,
        processes=member.layout.processes,
    )


def _environment(member: _Member) -> dict[str, str]:
    """What every replica is told, whatever it runs in; the user's own variables come on top."""
    user = _user_name(member)
    env = {
        "USER": user,
        "LOGNAME": user,
        "LANG": "C.UTF-8",
        "HOSTNAME": member.me.host,
        "PYTHONUNBUFFERED": "1",
        "TURNOUT_JOB": str(member.launch.attempt.job),
    }
    told = convention(member.launch.dialect)
    if len(member.gang) > 1 or told.ranks_one:
        env |= variables(member.gang, member.rank, told.by_name and bool(member.layout.sandbox))
    if member.launch.spec.dashboard and member.rank == 0:
        env[DASHBOARD_PORT] = str(member.me.ports[-1])
    if member.gpus or member.layout.gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, member.gpus))
    return env
