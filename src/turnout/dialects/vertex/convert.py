"""A job of another API as a CustomJob, and a custom job as the other APIs can express it."""

import shlex

import msgspec

from turnout.config import SHARED_CLUSTERS
from turnout.dialects.vertex import catalogue, translate
from turnout.dialects.vertex.custom_jobs import mounts, package_command
from turnout.dialects.vertex.custom_jobs.environment import SERVICE_VARIABLES
from turnout.dialects.vertex.protobuf import codec
from turnout.dialects.vertex.protobuf.times import SECOND
from turnout.dialects.vertex.wire import (
    AcceleratorType,
    ContainerSpec,
    CustomJob,
    CustomJobSpec,
    EnvVar,
    MachineSpec,
    NfsMount,
    Scheduling,
    WorkerPoolSpec,
)
from turnout.job import Job, Mount, Policy, Program, Resources, Role, Spec
from turnout.job.portable import Converted, Portable, left_out, moved, started_in
from turnout.job.resources import CORE, GIB

IMAGE = "python:3"
ACCELERATOR = AcceleratorType.NVIDIA_TESLA_T4
MAX_NAME = 128
MAX_POOLS = 4
_HAS = frozenset({"the time limit", "the retries", "preemption", "shells", "the program's own page"})
_BUCKETS = frozenset({"cos", "gs", "obs", "s3"})
_WORKER, _PS, _EVALUATOR = 1, 2, 3


def portable(spec: Spec) -> Portable:
    """Without what the cloud does for every job: its time limit, its retries and its variables."""
    notes: list[str] = []
    limit = spec.policy.time_limit
    policy = msgspec.structs.replace(
        spec.policy,
        retries=(),
        in_place=None,
        time_limit=None if limit == translate.DEFAULT_TIMEOUT else limit,
    )
    return Portable(
        msgspec.structs.replace(
            spec,
            roles=tuple(_portable_role(role, notes) for role in spec.roles),
            mounts=tuple(map(_portable_mount, spec.mounts)),
            working_dir="",
            policy=policy,
        ),
        tuple(dict.fromkeys(notes)),
    )


def convert(job: Job, portable: Portable) -> Converted:
    notes = [*portable.notes, *left_out(portable.spec, "Vertex", _HAS)]
    targets, nfs = _targets(portable.spec, notes)
    spec = moved(portable.spec, targets)
    start = spec.working_dir
    if start and not any(
        f"{mount.target}/".startswith(f"{start}/") or f"{start}/".startswith(f"{mount.target}/")
        for mount in spec.mounts
    ):
        notes.append(f"The program starts in {translate.WORKSPACE}: {start} is not there.")
        spec = msgspec.structs.replace(spec, working_dir="")
    pools: dict[int, WorkerPoolSpec] = {}
    for role in spec.roles:
        _add_pools(pools, role, spec, nfs, notes)
    custom = CustomJob(
        display_name=job.name[:MAX_NAME],
        job_spec=CustomJobSpec(
            worker_pool_specs=[pools.get(index, WorkerPoolSpec()) for index in range(max(pools) + 1)],
            scheduling=_scheduling(spec.policy),
            enable_web_access=spec.opens_shells,
            enable_dashboard_access=spec.program_page,
            persistent_resource_id="" if job.cluster in SHARED_CLUSTERS else job.cluster,
        ),
    )
    return Converted(codec.encode(custom), tuple(notes))


def _portable_role(role: Role, notes: list[str]) -> Role:
    late = set(role.late)
    env = {
        name: value for name, value in role.env.items() if name not in late and name not in SERVICE_VARIABLES
    }
    if left := late - SERVICE_VARIABLES:
        notes.append(
            f"{', '.join(sorted(left))}: left out, because the value has a reference such as $(RANK), which only "
            "Vertex has."
        )
    packages = package_command.parse(role.program.argv)
    if packages is None:
        return msgspec.structs.replace(role, env=env)
    files = [f"{package_command.DIRECTORY}/{file}" for file in packages.files]
    install = f"python3 -m pip install --user {shlex.join(files)}"
    start = f"exec python3 -m {shlex.join([packages.module, *packages.args])}"
    command = ("/bin/sh", "-c", f"{install} && {start}")
    program = msgspec.structs.replace(role.program, command=command, args=())
    return msgspec.structs.replace(role, program=program, env=env)


def _portable_mount(mount: Mount) -> Mount:
    """A package is one object; the other APIs mount the directory that it is in."""
    if not mount.target.startswith(f"{package_command.DIRECTORY}/"):
        return mount
    return msgspec.structs.replace(mount, source=mount.source.rpartition("/")[0])


def _targets(spec: Spec, notes: list[str]) -> tuple[dict[str, str], list[NfsMount]]:
    """Where Vertex has the job's mounts, by where they are."""
    targets: dict[str, str] = {}
    nfs: list[NfsMount] = []
    for mount in spec.mounts:
        scheme, _, path = mount.source.partition("://")
        if scheme in _BUCKETS:
            targets[mount.target] = f"{mounts.GCS}/{path.rstrip('/')}"
        elif scheme == "nfs":
            server, _, directory = path.partition("/")
            name = mount.target.strip("/").replace("/", "-")
            nfs.append(NfsMount(server=server, path=f"/{directory}", mount_point=name))
            targets[mount.target] = f"{mounts.NFS}/{name}"
        else:
            notes.append(f"{mount.source} is left out: Vertex mounts buckets and NFS only.")
    notes += [f"{old} is {new} there." for old, new in targets.items() if old != new]
    return targets, nfs


def _add_pools(
    pools: dict[int, WorkerPoolSpec], role: Role, spec: Spec, nfs: list[NfsMount], notes: list[str]
) -> None:
    """The lead is pool 0, which has one replica; its other replicas are pool 1."""
    if role.leads:
        pools[0] = _pool(role, 1, spec, nfs, notes)
        if role.replicas > 1:
            pools[_WORKER] = _pool(role, role.replicas - 1, spec, nfs, [])
        return
    if role.task_type == "ps" or role.name == "ps":
        free = [_PS]
    else:
        free = [_WORKER, _EVALUATOR]
    index = next((one for one in free if one not in pools), None)
    if index is None:
        notes.append(f"workerPoolSpecs: a job has at most {MAX_POOLS} pools, so {role.name} is left out.")
    else:
        pools[index] = _pool(role, role.replicas, spec, nfs, notes)


def _pool(role: Role, replicas: int, spec: Spec, nfs: list[NfsMount], notes: list[str]) -> WorkerPoolSpec:
    program: Program = started_in(spec.working_dir, role.program)
    if not program.image:
        wanted = f" that has {program.wants}" if program.wants else ""
        note = f"imageUri: choose an image{wanted}."
        if note not in notes:
            notes.append(note)
    return WorkerPoolSpec(
        container_spec=ContainerSpec(
            image_uri=program.image or IMAGE,
            command=list(program.command),
            args=list(program.args),
            env=[EnvVar(name=name, value=value) for name, value in role.env.items()],
        ),
        machine_spec=_machine(role.resources, role.accelerator, notes),
        replica_count=replicas,
        nfs_mounts=nfs,
    )


def _machine(needs: Resources, wanted: str, notes: list[str]) -> MachineSpec:
    """The smallest machine that has what a replica needs, or the largest with its accelerators."""
    options = sorted(_machines(needs.gpus, wanted), key=lambda one: one[0])
    if not options:
        notes.append(f"machineSpec: no machine has {needs.gpus} accelerators.")
        options = sorted(_machines(0, ""), key=lambda one: one[0])
    for (_, cpu, memory), spec in options:
        if cpu * CORE >= needs.millicores and memory * GIB >= needs.memory:
            return spec
    notes.append(
        f"machineSpec: no machine has {needs.millicores / CORE:g} cores and {needs.memory / GIB:g} GiB."
    )
    return options[-1][1]


def _machines(gpus: int, wanted: str) -> list[tuple[tuple[bool, int, float], MachineSpec]]:
    """(whether its accelerators are others than the wanted ones, cores, GiB) of each type with so many accelerators."""
    kind = _accelerator(wanted)
    types = catalogue.machine_types()
    found: list[tuple[tuple[bool, int, float], MachineSpec]] = []
    for name, machine in types.items():
        if not machine.tpu and machine.count == gpus:
            other = bool(gpus) and machine.accelerator != kind.name
            built_in = AcceleratorType[machine.accelerator] if gpus else AcceleratorType(0)
            spec = MachineSpec(machine_type=name, accelerator_type=built_in, accelerator_count=gpus)
            found.append(((other, machine.cpu, machine.memory), spec))
    for (name, accelerator), counts in catalogue.attachable_accelerators().items():
        if gpus in counts:
            machine, attached = types[name], AcceleratorType[accelerator]
            spec = MachineSpec(machine_type=name, accelerator_type=attached, accelerator_count=gpus)
            found.append(((attached is not kind, machine.cpu, machine.memory), spec))
    return found


def _scheduling(policy: Policy) -> Scheduling | None:
    if policy.time_limit is None and not policy.preemptible:
        return None
    spot = Scheduling.Strategy.SPOT
    return Scheduling(
        timeout=int(policy.time_limit * SECOND) if policy.time_limit else None,
        strategy=spot if policy.preemptible else Scheduling.Strategy.STRATEGY_UNSPECIFIED,
    )


def _accelerator(wanted: str) -> AcceleratorType:
    """`NVIDIA-V100`, as ModelArts spells it, is NVIDIA_TESLA_V100."""
    spelled = wanted.replace("-", "_")
    known = AcceleratorType.__members__
    return known.get(spelled) or known.get(spelled.replace("_", "_TESLA_", 1)) or ACCELERATOR
