"""A job of another API as a CreateJob request."""

import re

import msgspec

from turnout.access import tencent_account
from turnout.dialects.tia import wire
from turnout.dialects.tia.mounts import SYSTEM
from turnout.dialects.tia.translate import MAX_NAME
from turnout.job import Job, Mount, Resources, Role, Spec
from turnout.job.portable import Converted, Portable, left_out, started_in
from turnout.job.resources import CORE, GIB

RUNTIME = "tia-1.8.0-py3"
GPU_RUNTIME = "tia-1.8.0-gpu-py3"
"""The newest runtimes that can mount COS."""
HOST = "cos.ap-beijing.myqcloud.com"
_HAS = frozenset({"shells"})
_BUCKETS = frozenset({"cos", "gs", "obs", "s3"})
_TEN_DIGITS = re.compile(r".+-[0-9]{10}")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]*")


def convert(job: Job, portable: Portable) -> Converted:
    spec, notes = portable.spec, [*portable.notes, *left_out(portable.spec, "TI-A", _HAS)]
    lead, workers, servers = _roles(spec, notes)
    app_id = tencent_account.app_id(job.project)
    packages = [text for mount in spec.mounts if (text := _package(mount, app_id, notes))]
    if packages and not spec.working_dir:
        notes.append(f"The program starts in {spec.mounts[0].target}.")
    start = spec.working_dir if not spec.mounts or spec.working_dir != spec.mounts[0].target else ""
    gpus = any(role.resources.gpus for role in spec.roles)
    runtime = GPU_RUNTIME if gpus else RUNTIME
    wanted = lead.program.image or lead.program.wants
    if wanted:
        notes.append(f"RuntimeVersion: TI-A runs no images; {runtime} stands for {wanted}.")
    program = started_in(start, lead.program)
    variables = [f"{key}={value}" for key, value in lead.env.items()]
    if variables:
        notes.append("TI-A has no field for environment variables: the command `env` sets them.")
    request = wire.CreateJob(
        name=_name(job.name),
        cluster=job.cluster,
        runtime_version=runtime,
        package_dir=packages or None,
        command=["env", *variables, *program.command] if variables else list(program.command),
        args=list(program.args) or None,
        scale_tier="CUSTOM",
        master_type=_machine(lead.resources),
        worker_type=_machine(workers.resources) if workers else None,
        worker_count=workers.replicas if workers else None,
        parameter_server_type=_machine(servers.resources) if servers else None,
        parameter_server_count=servers.replicas if servers else None,
        debug=spec.opens_shells or None,
    )
    return Converted(msgspec.to_builtins(request), tuple(notes))


def _roles(spec: Spec, notes: list[str]) -> tuple[Role, Role | None, Role | None]:
    """The master, the workers and the parameter servers. The lead's other replicas are workers."""
    lead = spec.lead
    others = [role for role in spec.roles if not role.leads]
    workers = msgspec.structs.replace(lead, replicas=lead.replicas - 1) if lead.replicas > 1 else None
    servers = None
    for role in others:
        if role.task_type == "ps" or role.name == "ps":
            servers = servers or role
        elif workers is None:
            workers = role
        if role not in (workers, servers):
            notes.append(f"TI-A has a master, workers and parameter servers only: {role.name} is left out.")
        elif role.program.argv != lead.program.argv:
            notes.append(f"TI-A runs one program in all replicas: that of {role.name} is left out.")
        elif role.env != lead.env:
            notes.append(f"All replicas have the variables of {lead.name}: those of {role.name} differ.")
    return lead, workers, servers


def _machine(resources: Resources) -> str | None:
    if resources == Resources():
        return None
    cores, memory = -(-resources.millicores // CORE), -(-resources.memory // GIB)
    return f"{cores}U{memory}G{resources.gpus}P"


def _package(mount: Mount, app_id: int, notes: list[str]) -> str:
    """An entry of PackageDir; empty if there is none for such a mount."""
    scheme, _, path = mount.source.partition("://")
    problem = ""
    if mount.target.split("/")[1] in SYSTEM:
        problem = f"{mount.target} cannot be a mount point"
    elif ":" in mount.target or ":" in path:
        problem = "its path has a colon"
    elif scheme == "file":
        return f"file://{path}:{mount.target}" + (":ro" if mount.read_only else "")
    elif scheme in ("nfs", "cephfs"):
        host, slash, directory = path.partition("/")
        return f"{scheme}://{host}:{slash}{directory}:{mount.target}"
    elif scheme in _BUCKETS:
        bucket, _, directory = path.partition("/")
        if _BUCKET.fullmatch(bucket):
            full = bucket if _TEN_DIGITS.fullmatch(bucket) else f"{bucket}-{app_id}"
            return f"cos://{full}.{HOST}/{directory}:{mount.target}"
        problem = f"{bucket} cannot be the name of a COS bucket"
    notes.append(f"PackageDir: {mount.source} is left out: {problem or 'TI-A cannot mount it'}.")
    return ""


def _name(name: str) -> str:
    spelled = re.sub(r"[^a-z0-9.-]+", "-", name.lower()).lstrip(".-")[:MAX_NAME]
    return spelled or "job"
