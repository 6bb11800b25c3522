"""A job of another API as a ModelArts training job, and a training job as the other APIs can express it."""

import re
import shlex
from typing import Any

import msgspec

from turnout.config import SHARED_CLUSTERS, Settings
from turnout.dialects.modelarts import locations, wire
from turnout.dialects.modelarts.catalogue import tables
from turnout.dialects.modelarts.errors import INVALID
from turnout.dialects.modelarts.jobs.run_options import HOUR, MAX_VOLUMES
from turnout.dialects.modelarts.program import script
from turnout.errors import Invalid
from turnout.job import Job, Mount, Resources, Role, Spec
from turnout.job.portable import Converted, Portable, left_out, started_in
from turnout.job.resources import CORE, GIB

ENGINE = "pytorch_2.1.0-cuda_11.8-py_3.10-ubuntu_22.04-x86_64"
MAX_NAME = 64
_HAS = frozenset({"the time limit", "the priority", "preemption", "shells"})
_BUCKETS = frozenset({"cos", "gs", "obs", "s3"})
_SHELLS = frozenset({"/bin/sh", "/bin/bash", "sh", "bash"})


def portable(spec: Spec) -> Portable:
    """The command or the boot file of each role instead of the start script."""
    notes: list[str] = []
    starts = {role.name: script.parse(role.program.argv) for role in spec.roles}
    targets = {start.code: start.folder for start in starts.values() if start and start.code}
    directories = {start.working_dir or start.folder for start in starts.values() if start}
    apart = len(directories) > 1
    roles = [_portable_role(role, starts[role.name], apart, notes) for role in spec.roles]
    mounts = (
        msgspec.structs.replace(mount, target=targets.get(mount.target, mount.target))
        for mount in spec.mounts
    )
    spec = msgspec.structs.replace(
        spec,
        roles=tuple(roles),
        mounts=tuple(mounts),
        working_dir="" if apart else next(iter(directories), ""),
    )
    return Portable(spec, tuple(dict.fromkeys(notes)))


def convert(job: Job, portable: Portable, settings: Settings) -> Converted:
    spec, notes = portable.spec, [*portable.notes, *left_out(portable.spec, "ModelArts", _HAS)]
    pool = next((name for name, one in settings.pools.items() if one.cluster == job.cluster), "")
    if not pool and job.cluster not in SHARED_CLUSTERS:
        notes.append(f"spec.resource: no pool of the settings is on {job.cluster}.")
    channels = _channels(spec, notes)
    alike = len({(role.program, tuple(role.env.items()), role.resources) for role in spec.roles}) == 1
    parts: dict[str, Any]
    if alike:
        nodes = sum(role.replicas for role in spec.roles)
        algorithm = wire.JobAlgorithm(**_run(spec.lead, spec, notes), **channels)
        resource = wire.Resource(node_count=nodes, **_resource(spec.lead.resources, nodes, pool, notes))
        parts = {"algorithm": algorithm}
    else:
        roles = sorted(spec.roles, key=lambda role: not role.leads)
        tasks = [
            _task(role, spec, {} if number else channels, pool, notes) for number, role in enumerate(roles)
        ]
        parts, resource = {"tasks": tasks}, None
    document = wire.Job(
        kind="job", metadata=wire.Metadata(name=_name(job.name)), spec=_spec(spec, resource, notes), **parts
    )
    return Converted(msgspec.to_builtins(document), tuple(dict.fromkeys(notes)))


def _portable_role(role: Role, start: script.Start | None, apart: bool, notes: list[str]) -> Role:
    if start is None:
        return role
    command = (
        ("/bin/bash", "-c", start.command) if start.command else ("python", start.boot_file, *start.options)
    )
    program = msgspec.structs.replace(role.program, command=command, args=())
    if apart:
        program = started_in(start.working_dir or start.folder, program)
    if start.folder:
        notes.append(
            "ModelArts copies the code and installs its pip-requirements.txt before the program starts."
        )
    if start.family is not script.EngineFamily.PLAIN and not start.command:
        notes.append("On several nodes ModelArts adds options for ranks and hosts to those of the boot file.")
    return msgspec.structs.replace(role, program=program)


def _run(role: Role, spec: Spec, notes: list[str]) -> dict[str, Any]:
    program = role.program
    argv = program.argv
    is_script = len(argv) == 3 and argv[0] in _SHELLS and argv[1] == "-c"
    command = argv[2] if is_script else f"exec {shlex.join(argv)}"
    if spec.working_dir:
        command = f"cd {shlex.quote(spec.working_dir)} && {command}"
    engine = wire.Engine(image_url=program.image) if program.image else wire.Engine(engine_id=ENGINE)
    if not program.image:
        wanted = f" that has {program.wants}" if program.wants else ""
        notes.append(f"engine: choose an engine or an image{wanted}.")
    return {"engine": engine, "command": command, "environments": dict(role.env) or None}


def _task(role: Role, spec: Spec, channels: dict[str, Any], pool: str, notes: list[str]) -> wire.Task:
    resource = _resource(role.resources, role.replicas, pool, notes)
    resource.pop("main_container_customized_flavor", None)
    return wire.Task(
        role=role.name,
        algorithm=wire.TaskAlgorithm(**_run(role, spec, notes), **channels),
        task_resource=wire.TaskResource(node_count=role.replicas, **resource),
    )


def _resource(needs: Resources, nodes: int, pool: str, notes: list[str]) -> dict[str, Any]:
    if pool:
        custom = wire.CustomFlavor(needs.millicores / CORE, needs.memory / GIB, needs.gpus)
        return {"pool_id": pool, "main_container_customized_flavor": custom}
    options = sorted(
        (one for one in tables.flavors().values() if not one.pool and not one.npus and one.max_num >= nodes),
        key=lambda one: (one.gpus, one.cores, one.memory),
    )
    for one in options:
        if (
            one.gpus == needs.gpus
            and one.cores * CORE >= needs.millicores
            and one.memory * GIB >= needs.memory
        ):
            return {"flavor_id": one.id}
    nearest = next((one for one in options if one.gpus >= needs.gpus), options[-1])
    notes.append(f"flavor_id: no flavor has exactly what a replica needs; {nearest.id} is near.")
    return {"flavor_id": nearest.id}


def _channels(spec: Spec, notes: list[str]) -> dict[str, Any]:
    """Inputs and outputs; `_volumes` has what is both."""
    inputs: list[wire.Channel] = []
    outputs: list[wire.Channel] = []
    for mount in _mountable(spec, notes):
        found = inputs if mount.read_only else outputs
        if not mount.read_only and mount.fetch:
            continue
        name = f"{'input' if mount.read_only else 'output'}_{len(found)}"
        remote = wire.Remote(obs=wire.Obs(_obs(mount)))
        found.append(wire.Channel(name=name, local_dir=mount.target, remote=remote))
    return {key: found for key, found in (("inputs", inputs), ("outputs", outputs)) if found}


def _volumes(spec: Spec, notes: list[str]) -> list[wire.Volume]:
    both = [mount for mount in _mountable(spec, []) if not mount.read_only and mount.fetch]
    notes += [
        f"spec.volumes: {mount.source} is left out: at most {MAX_VOLUMES}." for mount in both[MAX_VOLUMES:]
    ]
    return [wire.Volume(obs=wire.ObsVolume(_obs(mount), mount.target)) for mount in both[:MAX_VOLUMES]]


def _mountable(spec: Spec, notes: list[str]) -> list[Mount]:
    found: list[Mount] = []
    for mount in spec.mounts:
        problem = ""
        try:
            locations.mount_point(mount.target, "local_dir", INVALID)
        except Invalid:
            problem = f"{mount.target} cannot be a mount point"
        if mount.source.partition("://")[0] not in (*_BUCKETS, "file"):
            problem = "without a pool, only OBS can be mounted"
        if problem:
            notes.append(f"{mount.source} is left out: {problem}.")
        else:
            found.append(mount)
    return found


def _obs(mount: Mount) -> str:
    scheme, separator, path = mount.source.partition("://")
    return f"{'obs' if scheme in _BUCKETS else scheme}{separator}{path}"


def _spec(spec: Spec, resource: wire.Resource | None, notes: list[str]) -> wire.Spec:
    policy = spec.policy
    hours = -(-int(policy.time_limit or 0) // HOUR)
    if policy.time_limit and policy.time_limit % HOUR:
        notes.append(f"spec.auto_stop: ModelArts counts hours; {policy.time_limit:g} s are rounded up.")
    schedule = wire.SchedulePolicy(
        priority=policy.priority if policy.priority > 1 else None, preemptible=policy.preemptible or None
    )
    return wire.Spec(
        resource=resource,
        volumes=_volumes(spec, notes) or None,
        auto_stop=wire.Hours("HOURS", hours) if hours else None,
        schedule_policy=schedule if schedule != wire.SchedulePolicy() else None,
        runtime_type="debug" if spec.opens_shells else None,
    )


def _name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:MAX_NAME] or "job"
