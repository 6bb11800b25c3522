"""Custom and hyperparameter tuning jobs as jobs. Knows both worlds; `answer` is the way back."""

from collections.abc import Iterator

import msgspec

from turnout.dialects.vertex import decode, machine_rules, mounts, programs, study, validate, variables
from turnout.dialects.vertex.decode import Decoded
from turnout.dialects.vertex.place import Place
from turnout.dialects.vertex.spelling import At, shown
from turnout.dialects.vertex.times import SECOND
from turnout.dialects.vertex.wire import CustomJob, CustomJobSpec, MachineSpec, Scheduling, WorkerPoolSpec
from turnout.dialects.vertex.wire_tuning import HyperparameterTuningJob
from turnout.errors import NotFound, Unavailable
from turnout.job import NewJob, Policy, Reason, Retry, Role, Spec, WhenLeadSucceeds

DIALECT = "vertex"
TASKS = ("chief", "worker", "ps", "evaluator")
"""What the pools are in TF_CONFIG."""
WORKSPACE = "/workspace"
DEFAULT_TIMEOUT = 7 * 86_400.0
DEFAULT_MAX_WAIT = 86_400.0
SPOT_RESTARTS = 6
"""After so many preemptions resources count as insufficient."""
SPOT_PRIORITY = 0
"""Below everyone who did not ask for a cheap place."""
LABEL = "label:"
LONGEST_TOLD = 64 << 10
"""Bytes. A variable can have 128 KiB, the gang's addresses among them."""

_ABORTED = (128 + 6, 128 + 11)
"""SIGABRT and SIGSEGV, also as a shell passes them on."""
_LOST = (Reason.NODE_LOST, Reason.KILLED)
_CRASHES = Retry(on=(Reason.KILLED, Reason.PROGRAM_FAILED), times=3, codes=_ABORTED)
_PLATFORM = Retry(on=_LOST, times=3, not_codes=_ABORTED)
_IN_PLACE = Retry(on=_LOST, times=5, not_codes=_ABORTED)
_TOGETHER = Retry(on=_LOST, times=_IN_PLACE.times + _PLATFORM.times, not_codes=_ABORTED)
"""For jobs whose replicas cannot do without each other: all start again instead of one."""

_INTERNAL = Retry(on=(Reason.STAGING_FAILED,), times=2, not_codes=(0,))
"""What went wrong on our side; but nobody trains again because results of a success could not be stored."""

_Strategy = Scheduling.Strategy
_SPOT = frozenset({_Strategy.SPOT, _Strategy.LOW_COST})


def scope(location: str) -> str:
    return f"{DIALECT}:{location}"


def tuning_scope(location: str) -> str:
    return f"{DIALECT}-tuning:{location}"


def new_job(decoded: Decoded[CustomJob], place: Place) -> NewJob:
    """Checks everything that the request and the settings tell; the mounts' sources are for `storage` to check."""
    validate.custom_job(decoded, place.location)
    job, at = decoded
    assert job.job_spec is not None
    return _new(decoded, place, scope(place.location), job.job_spec, at / "jobSpec", {})


def new_tuning_job(decoded: Decoded[HyperparameterTuningJob], place: Place) -> NewJob:
    """A search. How long a trial may run, and how often it is tried again, is no business of the whole."""
    job, at = decoded
    validate.head(job, at, place.location)
    notes: dict[str, None] = {}
    search = study.search(job, at, notes)
    if job.trial_job_spec is None:
        raise (at / "trialJobSpec").missing()
    validate.job_spec(job.trial_job_spec, at / "trialJobSpec")
    new = _new(decoded, place, tuning_scope(place.location), job.trial_job_spec, at / "trialJobSpec", notes)
    spec = msgspec.structs.replace(new.spec, search=search, policy=Policy(priority=new.spec.policy.priority))
    return msgspec.structs.replace(new, spec=spec)


def _new(
    decoded: Decoded[CustomJob] | Decoded[HyperparameterTuningJob],
    place: Place,
    scope: str,
    asked: CustomJobSpec,
    asked_at: At,
    notes: dict[str, None],
) -> NewJob:
    job, at = decoded
    key = ""
    if job.encryption_spec:
        key = _key(job.encryption_spec.kms_key_name, place, at / "encryptionSpec" / "kmsKeyName")
        # What it finds in buckets is copied, as its results are sealed on their way there.
        place = place._replace(remote=lambda _: True)
    spec = msgspec.structs.replace(job_spec(asked, place, asked_at, notes), key=key)
    return NewJob(
        project=place.project,
        dialect=DIALECT,
        scope=scope,
        handle="",
        name=job.display_name,
        cluster=_cluster(asked, place, asked_at),
        spec=spec,
        document=msgspec.json.encode(decode.encode(job)),
        notes=tuple(notes),
        labels={LABEL + key: value for key, value in job.labels.items()},
    )


def job_spec(spec: CustomJobSpec, place: Place, at: At, notes: dict[str, None]) -> Spec:
    """For one that `validate.job_spec` has passed."""
    found = mounts.of_job(spec, place, at)
    notes |= dict.fromkeys(found.notes)
    roles = tuple(_role(index, pool, spec, place, at, notes) for index, pool in _filled(spec))
    return Spec(
        roles=roles,
        mounts=found.mounts,
        working_dir=WORKSPACE,
        policy=_policy(spec.scheduling or Scheduling(), notes),
        told=_told(spec, notes),
        shell=spec.enable_web_access,
        dashboard=spec.enable_dashboard_access,
    )


def _key(name: str, place: Place, at: At) -> str:
    if place.keys is not None and name not in place.keys:
        raise at.wrong(
            f"there is no key {shown(name)} here; the operator can add it to [keyring] in the settings."
        )
    return name


def _cluster(spec: CustomJobSpec, place: Place, at: At) -> str:
    wanted = spec.persistent_resource_id
    if not wanted:
        return place.cluster
    if wanted not in place.clusters:
        where = (at / "persistentResourceId").spelt
        raise NotFound(
            f"{where}: there is no persistent resource {shown(wanted)}; a cluster of the settings is one: "
            f"{', '.join(sorted(place.clusters))}.",
            field=where,
        )
    return wanted


def _filled(spec: CustomJobSpec) -> Iterator[tuple[int, WorkerPoolSpec]]:
    return ((index, pool) for index, pool in enumerate(spec.worker_pool_specs) if not validate.is_empty(pool))


def _role(
    index: int, pool: WorkerPoolSpec, spec: CustomJobSpec, place: Place, at: At, notes: dict[str, None]
) -> Role:
    here = at / "workerPoolSpecs" / index
    machine = pool.machine_spec or MachineSpec()
    if machine_rules.wants_tpu(machine):
        raise Unavailable(
            f"Resources are insufficient in region: {place.location}. Try a different region or use a different "
            f"accelerator: there are no TPUs here, as {machine.machine_type} has.",
            field=(here / "machineSpec" / "machineType").spelt,
        )
    if pool.container_spec:
        given = pool.container_spec.env
        program = programs.of_container(pool.container_spec, place, here / "containerSpec", notes)
    else:
        assert pool.python_package_spec is not None
        given = pool.python_package_spec.env
        program = programs.of_package(pool.python_package_spec, mounts.packages(spec), place, notes)
    environment = variables.of_pool(spec, given, place.project, place.location)
    settings = place.runtimes.get(program.runtime)
    return Role(
        name=f"workerpool{index}",
        program=program,
        replicas=pool.replica_count or 1,
        resources=machine_rules.resources(machine),
        env=environment.env,
        late=environment.late,
        leads=index == 0,
        when_lead_succeeds=WhenLeadSucceeds.END,
        task_type=settings.lead_task if settings and index == 0 else TASKS[index],
    )


def _policy(scheduling: Scheduling, notes: dict[str, None]) -> Policy:
    spot = scheduling.strategy in _SPOT
    flexible = scheduling.strategy is _Strategy.FLEX_START
    if scheduling.max_wait_duration and not flexible:
        notes["maxWaitDuration has no effect: it goes with the strategy FLEX_START"] = None
    retries, in_place = _retries(scheduling)
    return Policy(
        retries=retries,
        in_place=in_place,
        time_limit=scheduling.timeout / SECOND if scheduling.timeout else DEFAULT_TIMEOUT,
        max_wait=_max_wait(scheduling.max_wait_duration) if flexible else None,
        retry_wait=None,
        priority=SPOT_PRIORITY if spot else 1,
        preemptible=spot,
        preemptions=_put_back(scheduling) if spot else None,
    )


def _retries(scheduling: Scheduling) -> tuple[tuple[Retry, ...], Retry | None]:
    """For the whole job, and for each replica in its place."""
    if scheduling.disable_retries:
        return (), None
    if scheduling.restart_job_on_worker_restart:
        return (_CRASHES, _TOGETHER, _INTERNAL), None
    return (_CRASHES, _PLATFORM, _INTERNAL), _IN_PLACE


def _put_back(scheduling: Scheduling) -> int:
    return 0 if scheduling.disable_retries else SPOT_RESTARTS


def _max_wait(duration: int | None) -> float | None:
    """Zero is for ever."""
    if duration is None:
        return DEFAULT_MAX_WAIT
    return duration / SECOND or None


def _told(spec: CustomJobSpec, notes: dict[str, None]) -> str:
    told = msgspec.json.encode(decode.encode(spec)).decode()
    if len(told.encode()) <= LONGEST_TOLD:
        return told
    notes["CLUSTER_SPEC and TF_CONFIG do not show the job's spec: it is too large for a variable"] = None
    return ""
