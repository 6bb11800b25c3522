"""The plan of a replica's process, computed without doing anything: a value that can be printed and tested.

In a sandbox a replica finds its mounts and scratch directories at exactly their targets, and its own space at
`/workspace` (also its HOME) and `/tmp`. Without one, the host's paths cannot be used: the same tree is made below
`space/tmp/root` in the replica's directory, with links for the mounts, and arguments and variables that name a target
are rewritten to the real path. In both cases TURNOUT_ROOT is the prefix for targets, and TURNOUT_MOUNT_0… are the
mounts.

Other jobs may write where a mount's source lies, and can replace it by a link at any time. So the sandbox never gets
its path: the supervisor opens it without following links and binds it in a mount namespace of this replica. Without a
sandbox nothing separates jobs, and the links are a convenience.

The working directory is the spec's, or else the first mount, or else the replica's own space.
"""

import posixpath
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from turnout.job import Gang, Launch, Peer, ReplicaName, Role
from turnout.job.conventions import convention
from turnout.job.expand import expand_late
from turnout.job.resources import CORE
from turnout.job.storage_variables import METADATA_ADDRESS, METADATA_NAMES, withheld
from turnout.job.topology import DASHBOARD_PORT, TF_CONFIG, maps, tasks, variables
from turnout.paths import Paths
from turnout.runner import images as image_rules
from turnout.runner.allowance import allowance
from turnout.runner.gpu_driver import GpuDriver
from turnout.runner.images import ImageRoot
from turnout.runner.messages import SPILL, GangPlan, ReplicaPlan, Shared
from turnout.runner.targets import (
    FARM,
    SHIMS,
    Bind,
    Impossible,
    check_targets,
    farm,
    rewrite,
    scratch_paths,
    within,
)

PYTHONS = frozenset({"python", "python2", "python3"})
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
WORKSPACE = "/workspace"
STREAM_PIPES = "/run/out"
"""The directory in a sandbox that contains the pipes behind /dev/stdout and /dev/stderr."""

# It is removed with the workspace.
_SCRATCH = "space/scratch"

# Bubblewrap takes at most 9000 arguments, its own included.
_MAX_ARGUMENTS = 8000
_UNSPILL = """import os, sys
with open({fd}) as file:
    argv = file.read().split(chr(0))
try:
    os.execvp(argv[0], argv)
except OSError as error:
    sys.exit(str(error))
"""


class Runtime(NamedTuple):
    """An interpreter, the directory of program names that lead to it, and what it needs from the host."""

    python: str
    shims: str
    binds: tuple[tuple[str, str], ...] = ()
    """(directory here, path in the sandbox), read-only."""
    scripts: str = ""
    """The directory of the programs of its environment; empty: it has none."""

    def search_path(self, shims: str) -> str:
        return ":".join(filter(None, (shims, self.scripts, SYSTEM_PATH)))


class PodmanTools(NamedTuple):
    """Programs that run a replica's container."""

    python: str
    """Runs the program between the supervisor and podman."""
    podman: str
    crun: str
    conmon: str
    catatonit: str


class Layout(NamedTuple):
    """Settings that all replicas of an engine share."""

    sandbox: tuple[str, ...] = ()
    """Bubblewrap and the options that never change; empty: no sandbox."""
    image_sandbox: tuple[str, ...] = ()
    """The same for replicas that run in an image; empty: they cannot."""
    podman: PodmanTools | None = None
    """Runs replicas in images; None: bubblewrap does."""
    processes: int = 4096
    log_bytes: int = 1 << 30
    disk: int = 0
    """Limit of a replica's workspace and /tmp in bytes; 0: what the job asks for."""
    gpus: bool = False
    """The machine has GPUs, so a replica without one gets an empty CUDA_VISIBLE_DEVICES."""
    gpu_devices: tuple[str, ...] = ()
    """Device files that a replica with a GPU needs besides the GPU's own; empty: the GPUs are simulated."""
    gpu_driver: GpuDriver | None = None
    """What images need to use the GPUs; None: the machine has no description of that."""
    user: str = ""
    uid: int = 0
    group: int = 0
    """The user of the project's jobs: its name, its uid (0: the supervisor's own), and the id of its group."""
    own_network: bool = False
    """Each gang has a private network."""
    names: bool = True
    """The sandbox has an /etc/hosts with the names of the gang."""


class Member(NamedTuple):
    """Everything that a replica's plan depends on."""

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
    image: ImageRoot | None = None
    root: int | None = None
    """See ReplicaPlan."""

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
    env: dict[str, str] | None = None,
    images: Mapping[str, ImageRoot] = MappingProxyType({}),
) -> GangPlan:
    """`runtimes` by the name that roles use, `images` by `Program.root`. `seal`, `env`: see Shared. `only`: plan this
    replica alone.

    Raises Impossible.
    """
    scratch = scratch_paths(launch.spec.scratch, binds) if launch.spec.scratch else []
    check_targets([bind.target for bind in binds], scratch)
    stage = str(paths.stage)
    sandboxed = bool(layout.sandbox)
    hosts = hosts_file(gang, convention(launch.dialect).domain(launch)) if sandboxed else ""
    if hosts and env and layout.own_network:
        hosts += f"{METADATA_ADDRESS} {' '.join(METADATA_NAMES)}\n"
    cluster_maps = gang_maps(launch, gang, sandboxed)
    replicas: list[ReplicaPlan] = []
    names = list(images)
    for rank, (name, role) in enumerate(launch.replicas()):
        if only not in (None, name):
            continue
        home = paths.home(launch.attempt, name)
        runtime = runtimes[role.program.runtime]
        member = Member(launch, gang, rank, role, runtime, binds, scratch, layout, home, stage, cluster_maps)
        if wanted := role.program.root:
            member = member._replace(image=images[wanted], root=names.index(wanted))
        replicas.append(plan_member(member))
    policy = launch.spec.policy
    note = {str(peer.name): (peer.address, peer.ports) for peer in gang}
    sandbox = "".join(option + "\0" for option in layout.sandbox)
    mounts = [(bind.root, bind.parts) for bind in binds]
    shared = Shared(mounts, stage, cluster_maps, hosts, sandbox, seal, layout.own_network, env or {})
    if images:
        options = "".join(option + "\0" for option in layout.image_sandbox)
        roots = [image.layers for image in images.values()]
        podman = list(layout.podman or ())
        shared = msgspec.structs.replace(shared, image_sandbox=options, roots=roots, podman=podman)
    return GangPlan(
        str(launch.attempt),
        note,
        policy.grace,
        policy.time_limit,
        layout.log_bytes,
        shared,
        replicas,
        allowance(launch),
        layout.uid,
        _disk(launch, layout.disk),
        [image.digest for image in images.values()],
    )


def _disk(launch: Launch, most: int) -> dict[str, int]:
    requested = {role.name: role.resources.disk or most for role in launch.spec.roles}
    return {role: min(bytes, most or bytes) for role, bytes in requested.items() if bytes}


def gang_maps(launch: Launch, gang: Gang, sandboxed: bool) -> dict[str, str]:
    own = convention(launch.dialect)
    found = maps(launch, gang, sandboxed and own.by_name) | own.maps(launch, gang, sandboxed)
    if len(gang) == 1 and not own.ranks_single_replica:
        del found[TF_CONFIG]
    return found


def hosts_file(gang: Gang, domain: str) -> str:
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
    if domain:
        lines += [f"{peer.address} {peer.host} {peer.host}.{domain}" for peer in gang]
    else:
        lines += [f"{peer.address} {peer.host}" for peer in gang]
    return "\n".join(lines) + "\n"


def plan_member(member: Member) -> ReplicaPlan:
    if member.image:
        return _in_image(member, member.image)
    argv = list(member.role.program.argv)
    if not argv:
        raise Impossible(f"role {member.role.name} has no command")
    if argv[0] in PYTHONS:
        argv[0] = member.runtime.python
    return _sandboxed(member, argv) if member.layout.sandbox else _bare(member, argv)


def _sandboxed(member: Member, argv: list[str]) -> ReplicaPlan:
    home, binds, layout = member.home, member.binds, member.layout
    options = ["--hostname", member.me.host]
    options += ("--ro-bind", f"{home}/space/box/out", STREAM_PIPES)
    options += ("--bind", f"{home}/space/tmp", "/tmp", "--bind", f"{home}/space/work", WORKSPACE)
    inner = [bind for bind in member.runtime.binds if any(within(bind[1], path) for path in member.scratch)]
    for source, target in ((member.runtime.shims, SHIMS), *member.runtime.binds):
        options += ("--ro-bind", source, target) if (source, target) not in inner else ()
    dirs: list[str] = []
    for number, path in enumerate(member.scratch):
        # Mounts inside it come later: their mount points are made before any process of the job can run.
        dirs += () if dirs else (_SCRATCH,)
        dirs.append(f"{_SCRATCH}/{number}")
        options += ("--bind", f"{home}/{_SCRATCH}/{number}", path)
    for source, target in inner:
        options += ("--ro-bind", source, target)
    options += _binds(member)
    if layout.gpu_devices:
        for number in member.gpus:
            options += ("--dev-bind", f"/dev/nvidia{number}", f"/dev/nvidia{number}")
        for device in layout.gpu_devices if member.gpus else ():
            options += ("--dev-bind", device, device)
    spill: list[str] = []
    if len(argv) > _MAX_ARGUMENTS:
        argv, spill = [member.runtime.python, "-I", "-S", "-c", _UNSPILL.format(fd=SPILL)], argv
    cwd = member.launch.spec.working_dir or (binds[0].target if binds else WORKSPACE)
    options += ("--chdir", cwd)
    own = {"PATH": member.runtime.search_path(SHIMS), "HOME": WORKSPACE, "PWD": cwd, "TURNOUT_ROOT": ""}
    own |= _names(_user_name(member))
    own |= {f"TURNOUT_MOUNT_{number}": bind.target for number, bind in enumerate(binds)}
    own |= convention(member.launch.dialect).variables(member.launch, member.gang, member.rank)
    passwd = ""
    if member.role.program.user is not None:
        options += ("--uid", str(member.role.program.user))
        passwd = _passwd(member, own["HOME"])
    return _replica(member, argv, own, "/", dirs=dirs, sandbox=options, spill=spill, passwd=passwd)


def _binds(member: Member) -> list[str]:
    options: list[str] = []
    for number, bind in enumerate(member.binds):
        options += ("--ro-bind" if bind.read_only else "--bind", f"{member.stage}/{number}", bind.target)
    return options


def _in_image(member: Member, image: ImageRoot) -> ReplicaPlan:
    """The image is the root directory, with the job's mounts on top. Home and working directory are the image's."""
    program, layout, spec = member.role.program, member.layout, member.launch.spec
    argv, user = image_rules.argv(image, program), image_rules.user(image, program)
    if len(argv) > _MAX_ARGUMENTS:
        raise Impossible(
            f"the command line has {len(argv)} words; in an image at most {_MAX_ARGUMENTS} are possible"
        )
    options = ["--hostname", member.me.host, "--uid", str(user.uid), "--gid", str(user.gid)]
    options += ("--ro-bind", f"{member.home}/space/box/out", STREAM_PIPES)
    # For the modules in it. It is not on PATH: the image has its own Python.
    options += ("--ro-bind", member.runtime.shims, SHIMS)
    # Not as private directories: they would hide what the image has there.
    for path in member.scratch:
        options += ("--dir", path)
    options += _binds(member)
    if layout.podman:
        _check_for_podman(options)
    own = {"PATH": image_rules.DEFAULT_PATH, "HOME": user.home, **_names(user.name), **dict(image.env)}
    if member.gpus and layout.gpu_devices:
        own |= _add_gpus(member, options, own | member.role.env)
    cwd = spec.working_dir if spec.working_dir not in ("", WORKSPACE) else image.working_dir or "/"
    options += ("--chdir", cwd)
    own |= {"PWD": cwd, "TURNOUT_ROOT": ""}
    own |= {f"TURNOUT_MOUNT_{number}": bind.target for number, bind in enumerate(member.binds)}
    own |= convention(member.launch.dialect).variables(member.launch, member.gang, member.rank)
    return _replica(member, argv, own, "/", sandbox=options)


def _check_for_podman(options: list[str]) -> None:
    for text in options:
        if ":" in text:
            raise Impossible(f"podman cannot mount a path with a colon: {text[:200]!r}")


def _add_gpus(member: Member, options: list[str], env: Mapping[str, str]) -> dict[str, str]:
    """Adds the options that show the replica's GPUs and the driver. Returns the variables for that."""
    if member.layout.gpu_driver is None:
        raise Impossible(
            "this machine has no description of what images need to use its GPUs; "
            "make it with `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"
        )
    try:
        edits = member.layout.gpu_driver.of(member.gpus)
    except LookupError as error:
        raise Impossible(str(error)) from None
    for here, inside in edits.devices:
        options += ("--dev-bind", here, inside)
    for here, inside in edits.mounts:
        options += ("--ro-bind", here, inside)
    for leads_to, inside in edits.links:
        options += ("--symlink", leads_to, inside)
    libraries = ":".join(filter(None, (env.get("LD_LIBRARY_PATH", ""), *edits.libraries)))
    return dict(edits.env) | ({"LD_LIBRARY_PATH": libraries} if edits.libraries else {})


def _passwd(member: Member, home: str) -> str:
    uid = member.role.program.user
    lines = [f"{_user_name(member)}:x:{uid}:{member.layout.group}::{home}:/bin/sh"]
    lines += ["root:x:0:0:root:/root:/usr/sbin/nologin"] if uid else []
    return "\n".join([*lines, "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin"]) + "\n"


def _user_name(member: Member) -> str:
    uid = member.role.program.user
    if uid is None or not member.layout.sandbox:
        return member.layout.user
    return (convention(member.launch.dialect).user or member.layout.user) if uid else "root"


def _bare(member: Member, argv: list[str]) -> ReplicaPlan:
    home, binds = member.home, member.binds
    real_paths = _real_paths(member)
    own = {
        "PATH": member.runtime.search_path(member.runtime.shims),
        "HOME": f"{home}/space/work",
        "TMPDIR": f"{home}/space/tmp",
        "TURNOUT_ROOT": f"{home}/{FARM}",
    } | _names(_user_name(member))
    own |= {f"TURNOUT_MOUNT_{number}": bind.source for number, bind in enumerate(binds)}
    dialect = convention(member.launch.dialect).variables(member.launch, member.gang, member.rank)
    own |= {name: rewrite(text, real_paths) for name, text in dialect.items()}
    wanted = member.launch.spec.working_dir
    if wanted:
        cwd = rewrite(wanted, real_paths)
        cwd = cwd if cwd != wanted else f"{home}/{FARM}{posixpath.normpath(wanted)}"
    else:
        cwd = binds[0].source if binds else f"{home}/space/work"
    extra = [f"{FARM}{path}" for path in member.scratch]
    if cwd.startswith(f"{home}/{FARM}/"):
        extra.append(cwd.removeprefix(f"{home}/"))
    dirs, links = farm(binds, extra)
    mount = next((number for number, bind in enumerate(binds) if within(cwd, bind.source)), None)
    argv = [rewrite(text, real_paths) for text in argv]
    env = {name: rewrite(text, real_paths) for name, text in member.role.env.items()}
    return _replica(member, argv, own, cwd, cwd_mount=mount, dirs=dirs, links=links, env=env)


def _real_paths(member: Member) -> dict[str, str]:
    """The real path of each target, inner targets first, so that the first match is the right one."""
    real_paths = {bind.target.rstrip("/"): bind.source for bind in member.binds}
    real_paths[SHIMS] = member.runtime.shims
    if not member.scratch:
        return real_paths
    real_paths |= {path: f"{member.home}/{FARM}{path}" for path in member.scratch}
    return dict(sorted(real_paths.items(), key=lambda item: -len(item[0])))


def _replica(
    member: Member,
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
    service = {"LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"} | own | _environment(member)
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
        root=member.root,
        notice=member.role.program.notice,
        # Also for the sake of variables that come from the image.
        withheld=withheld(own | user),
        millicores=resources.millicores,
        cpu=resources.millicores / CORE,
        memory=resources.memory,
        processes=member.layout.processes,
    )


def _names(user: str) -> dict[str, str]:
    return {"USER": user, "LOGNAME": user}


def _environment(member: Member) -> dict[str, str]:
    """Variables of every replica, with or without a sandbox. The user's variables override them."""
    env = {"HOSTNAME": member.me.host, "TURNOUT_JOB": str(member.launch.attempt.job)}
    dialect = convention(member.launch.dialect)
    if len(member.gang) > 1 or dialect.ranks_single_replica:
        env |= variables(
            member.gang, member.rank, dialect.by_name and bool(member.layout.sandbox) and member.layout.names
        )
    if member.launch.spec.program_page and member.rank == 0:
        env[DASHBOARD_PORT] = str(member.me.ports[-1])
    if member.gpus or member.layout.gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, member.gpus))
    return env
