"""Translates custom and hyperparameter tuning jobs to the job model; `render` is the reverse."""

from collections.abc import Iterator

import msgspec

from turnout.config import SHARED_CLUSTERS
from turnout.dialects.vertex.custom_jobs import machine_rules, mounts, validate
from turnout.dialects.vertex.custom_jobs.environment import pool_environment
from turnout.dialects.vertex.custom_jobs.program import ForJob, container_program, package_program
from turnout.dialects.vertex.installation import Installation
from turnout.dialects.vertex.protobuf import codec
from turnout.dialects.vertex.protobuf.codec import Decoded
from turnout.dialects.vertex.protobuf.field_path import FieldPath, quoted
from turnout.dialects.vertex.protobuf.times import SECOND
from turnout.dialects.vertex.tuning import study
from turnout.dialects.vertex.tuning.wire import HyperparameterTuningJob
from turnout.dialects.vertex.wire import CustomJob, CustomJobSpec, MachineSpec, Scheduling, WorkerPoolSpec
from turnout.errors import NotFound, Unavailable
from turnout.job import NewJob, Policy, Reason, Retry, Role, Spec, WhenLeadSucceeds
from turnout.job.resources import GIB

DIALECT = "vertex"
TASK_TYPES = ("chief", "worker", "ps", "evaluator")
"""The task types of the worker pools in TF_CONFIG."""
WORKSPACE = "/workspace"
DEFAULT_TIMEOUT = 7 * 86_400.0
DEFAULT_MAX_WAIT = 86_400.0
SPOT_RESTARTS = 6
"""Preemptions after which the job fails for lack of resources."""
SPOT_PRIORITY = 0
"""Below all other jobs."""
LABEL_PREFIX = "label:"
MAX_SPEC_BYTES = 64 << 10
"""A variable can have 128 KiB, and it also contains the addresses of the replicas."""

_ABORTED = (128 + 6, 128 + 11)
"""SIGABRT and SIGSEGV, also as a shell passes them on."""
_LOST = (Reason.NODE_LOST, Reason.KILLED)
_CRASHES = Retry(on=(Reason.KILLED, Reason.PROGRAM_FAILED), times=3, codes=_ABORTED)
_PLATFORM = Retry(on=_LOST, times=3, not_codes=_ABORTED)
_IN_PLACE = Retry(on=_LOST, times=5, not_codes=_ABORTED)
_WHOLE_JOB = Retry(on=_LOST, times=_IN_PLACE.times + _PLATFORM.times, not_codes=_ABORTED)
"""For `restartJobOnWorkerRestart`: all replicas restart instead of one."""

_INTERNAL = Retry(on=(Reason.STAGING_FAILED,), times=2, not_codes=(0,))
"""Failures of the service. Exit code 0 is excluded: a job does not train again because its results were not stored."""

_Strategy = Scheduling.Strategy
_SPOT = frozenset({_Strategy.SPOT, _Strategy.LOW_COST})


def scope(location: str) -> str:
    return f"{DIALECT}:{location}"


def tuning_scope(location: str) -> str:
    return f"{DIALECT}-tuning:{location}"


def new_job(decoded: Decoded[CustomJob], installation: Installation) -> NewJob:
    """Checks everything except the sources of mounts, which `storage` checks. Raises Invalid and others."""
    validate.custom_job(decoded, installation.location)
    job, path = decoded
    assert job.job_spec is not None
    return assemble(decoded, installation, scope(installation.location), job.job_spec, path / "jobSpec", {})


def new_tuning_job(decoded: Decoded[HyperparameterTuningJob], installation: Installation) -> NewJob:
    """A search. `scheduling` applies to each trial, not to the search."""
    validate.common_fields(decoded.message, decoded.path, installation.location)
    return tuning_search(decoded, decoded.path, installation)


def tuning_search(
    decoded: Decoded[HyperparameterTuningJob], root: FieldPath, installation: Installation
) -> NewJob:
    """The search of a tuning job whose fields below `decoded.path` are not checked yet. `root` has the others."""
    job, path = decoded
    notes: dict[str, None] = {}
    search = study.to_search(job, path, notes)
    if job.trial_job_spec is None:
        raise (path / "trialJobSpec").missing()
    validate.job_spec(job.trial_job_spec, path / "trialJobSpec")
    new = assemble(
        Decoded(job, root),
        installation,
        tuning_scope(installation.location),
        job.trial_job_spec,
        path / "trialJobSpec",
        notes,
    )
    spec = msgspec.structs.replace(new.spec, search=search, policy=Policy(priority=new.spec.policy.priority))
    return msgspec.structs.replace(new, spec=spec)


def assemble(
    decoded: Decoded[CustomJob] | Decoded[HyperparameterTuningJob],
    installation: Installation,
    scope: str,
    custom_job_spec: CustomJobSpec,
    spec_path: FieldPath,
    notes: dict[str, None],
) -> NewJob:
    """The job of a document whose `custom_job_spec` is the program. Both must have been checked by `validate`."""
    job, path = decoded
    key = ""
    if job.encryption_spec:
        key = _kms_key(job.encryption_spec.kms_key_name, installation, path / "encryptionSpec" / "kmsKeyName")
        # An encrypted job works on copies, because its results are encrypted on the way to the bucket.
        installation = installation._replace(remote=lambda _: True)
    spec = msgspec.structs.replace(job_spec(custom_job_spec, installation, spec_path, notes), key=key)
    return NewJob(
        project=installation.project,
        dialect=DIALECT,
        scope=scope,
        handle="",
        name=job.display_name,
        cluster=_cluster(custom_job_spec, installation, spec_path),
        spec=spec,
        document=msgspec.json.encode(codec.encode(job)),
        notes=tuple(notes),
        labels={LABEL_PREFIX + key: value for key, value in job.labels.items()},
    )


def job_spec(
    spec: CustomJobSpec, installation: Installation, path: FieldPath, notes: dict[str, None]
) -> Spec:
    """`validate.job_spec` must have accepted the spec."""
    found = mounts.job_mounts(spec, installation, path)
    notes |= dict.fromkeys(found.notes)
    job = ForJob(installation, _cluster(spec, installation, path), notes)
    roles = tuple(_role(index, pool, spec, job, path) for index, pool in _used_pools(spec))
    return Spec(
        roles=roles,
        mounts=found.mounts,
        working_dir=WORKSPACE,
        policy=_policy(spec.scheduling or Scheduling(), notes),
        config_job=_spec_variable(spec, notes),
        shell=spec.enable_web_access,
        program_page=spec.enable_dashboard_access,
    )


def _kms_key(name: str, installation: Installation, path: FieldPath) -> str:
    if installation.keys is not None and name not in installation.keys:
        raise path.invalid(
            f"there is no key {quoted(name)} in this service; the operator can add it to [keyring] in the settings."
        )
    return name


def _cluster(spec: CustomJobSpec, installation: Installation, path: FieldPath) -> str:
    resource_id = spec.persistent_resource_id
    if not resource_id:
        return installation.cluster
    if resource_id in installation.resources:
        return installation.resources[resource_id]
    if resource_id not in installation.clusters:
        field = (path / "persistentResourceId").as_sent
        others = ", ".join(sorted(set(installation.clusters) - set(SHARED_CLUSTERS)))
        known = (
            f"there are {others}"
            if others
            else "create it (persistentResources), or the operator can add it to the settings as [clusters.<id>]"
        )
        raise NotFound(
            f"{field}: there is no persistent resource {quoted(resource_id)}; {known}.",
            field=field,
        )
    return resource_id


def _used_pools(spec: CustomJobSpec) -> Iterator[tuple[int, WorkerPoolSpec]]:
    return ((index, pool) for index, pool in enumerate(spec.worker_pool_specs) if not validate.is_empty(pool))


def _role(
    index: int,
    pool: WorkerPoolSpec,
    spec: CustomJobSpec,
    job: ForJob,
    path: FieldPath,
) -> Role:
    installation, notes = job.installation, job.notes
    pool_path = path / "workerPoolSpecs" / index
    machine = pool.machine_spec or MachineSpec()
    if machine_rules.wants_tpu(machine):
        raise Unavailable(
            f"Resources are insufficient in region: {installation.location}. Try a different region or use a different "
            f"accelerator: {machine.machine_type} has TPUs, and this service has none.",
            field=(pool_path / "machineSpec" / "machineType").as_sent,
        )
    if pool.container_spec:
        given = pool.container_spec.env
        program = container_program(pool.container_spec, job, pool_path / "containerSpec")
    else:
        assert pool.python_package_spec is not None
        given = pool.python_package_spec.env
        directories = mounts.package_directories(spec)
        program = package_program(pool.python_package_spec, directories, job, pool_path / "pythonPackageSpec")
    environment = pool_environment(spec, given, installation.project, installation.location)
    settings = installation.runtimes.get(program.runtime)
    resources = machine_rules.resources(machine, pool.disk_spec)
    if 0 < installation.disk < resources.disk:
        limit = f"a replica has at most {installation.disk / GIB:.4g} GB here ([limits] disk in the settings)"
        notes[f"{(pool_path / 'diskSpec' / 'bootDiskSizeGb').as_sent}: {limit}"] = None
    return Role(
        name=f"workerpool{index}",
        program=program,
        replicas=pool.replica_count or 1,
        resources=resources,
        env=environment.env,
        late=environment.late,
        leads=index == 0,
        when_lead_succeeds=WhenLeadSucceeds.END,
        task_type=settings.lead_task if settings and index == 0 else TASK_TYPES[index],
        machine=machine.machine_type,
        accelerator=machine.accelerator_type.name if machine.accelerator_type else "",
    )


def _policy(scheduling: Scheduling, notes: dict[str, None]) -> Policy:
    spot = scheduling.strategy in _SPOT
    flexible = scheduling.strategy is _Strategy.FLEX_START
    if scheduling.max_wait_duration and not flexible:
        notes["maxWaitDuration has no effect without the strategy FLEX_START"] = None
    retries, in_place = _retries(scheduling)
    return Policy(
        retries=retries,
        in_place=in_place,
        time_limit=scheduling.timeout / SECOND if scheduling.timeout else DEFAULT_TIMEOUT,
        max_wait=_max_wait(scheduling.max_wait_duration) if flexible else None,
        retry_wait=None,
        priority=SPOT_PRIORITY if spot else 1,
        preemptible=spot,
        preemptions=_preemptions(scheduling) if spot else None,
    )


def _retries(scheduling: Scheduling) -> tuple[tuple[Retry, ...], Retry | None]:
    """The retries of the whole job, and of each replica in place."""
    if scheduling.disable_retries:
        return (), None
    if scheduling.restart_job_on_worker_restart:
        return (_CRASHES, _WHOLE_JOB, _INTERNAL), None
    return (_CRASHES, _PLATFORM, _INTERNAL), _IN_PLACE


def _preemptions(scheduling: Scheduling) -> int:
    return 0 if scheduling.disable_retries else SPOT_RESTARTS


def _max_wait(duration: int | None) -> float | None:
    """None: no limit, which Vertex spells as zero."""
    if duration is None:
        return DEFAULT_MAX_WAIT
    return duration / SECOND or None


def _spec_variable(spec: CustomJobSpec, notes: dict[str, None]) -> str:
    text = msgspec.json.encode(codec.encode(spec)).decode()
    if len(text.encode()) <= MAX_SPEC_BYTES:
        return text
    notes["CLUSTER_SPEC and TF_CONFIG do not show the job's spec: it is too large for a variable"] = None
    return ""
