"""Commands of users: create, stop, delete, amend. Each either raises before it changes anything, or succeeds whole."""

from turnout.control.allocations import counted
from turnout.control.ends import remove
from turnout.control.live_job import LiveJob
from turnout.control.live_jobs import LiveJobs
from turnout.control.node_pool import NodePool
from turnout.control.quotas import check_at_create
from turnout.control.stopping import begin_stop
from turnout.control.trials import begin_trial, finish_search, finish_trial, stop_trial
from turnout.control.turn import Amend, Command, Create, Delete, FinishSearch, FinishTrial, Stop, StopTrial
from turnout.control.verdict import Verdict
from turnout.errors import AlreadyExists, NotFound, TurnoutError, Unavailable, WrongState
from turnout.job import AuditLine, EventKind, Job, Reason, State


def answer(live_jobs: LiveJobs, command: Command) -> Job | TurnoutError:
    """Runs the command. Returns the job, or the error that its caller gets."""
    try:
        job = _run(live_jobs, command)
    except TurnoutError as error:
        return error
    line: AuditLine | None = getattr(command, "audit", None)
    if line:
        about = line.about(live_jobs.now, job.project, job.id, job.name)
        live_jobs.turn.batch.audit.append(about)
    return job


def _run(live_jobs: LiveJobs, command: Command) -> Job:
    match command:
        case Create():
            return create(live_jobs, command)
        case Stop():
            return _stop(live_jobs, command)
        case Delete():
            return _delete(live_jobs, command)
        case Amend():
            return _amend(live_jobs, command)
        case StopTrial():
            return stop_trial(live_jobs, command)
        case FinishTrial():
            return finish_trial(live_jobs, command)
        case FinishSearch():
            return finish_search(live_jobs, command)


def create(live_jobs: LiveJobs, command: Create) -> Job:
    new = command.new
    handle = (new.project, new.scope, new.handle)
    if new.handle and (command.taken or handle in live_jobs.handles):
        raise AlreadyExists(f"a job named {new.name} already exists: delete it first, or choose another name")
    engine = live_jobs.engine_of(new.cluster)
    job = Job(
        id=command.job_id,
        project=new.project,
        dialect=new.dialect,
        scope=new.scope,
        handle=new.handle,
        name=new.name,
        cluster=new.cluster,
        state=State.QUEUED,
        priority=new.spec.policy.priority,
        created=live_jobs.now,
        updated=live_jobs.now,
        owner=command.owner,
    )
    live = LiveJob(job, new.spec, engine)
    _check_gpus(live_jobs.pools[engine], live)
    check_at_create(live_jobs, live, is_trial=command.trial is not None)
    if command.trial:
        begin_trial(live_jobs, job, command.trial)
    live_jobs.admit(live)
    if not live.is_search:
        live_jobs.enqueue(live)
    live_jobs.turn.batch.created.append((job, new))
    live_jobs.event(job, EventKind.CREATED, "created")
    for note in new.notes:
        live_jobs.event(job, EventKind.NOTE, note)
    return job


def _check_gpus(pool: NodePool, live: LiveJob) -> None:
    need, _, never = pool.fit(live.parts)
    if not pool.nodes or not never:
        return
    if need.gpus > pool.total.gpus:
        there = f"are only {pool.total.gpus}" if pool.total.gpus else "are none"
        raise Unavailable(f"{counted(need.gpus, 'GPU')} requested, but there {there}")
    there = ", ".join(str(node.gpus) for node in pool.nodes)
    raise Unavailable(f"{counted(need.gpus, 'GPU')} requested, but the machines have {there}")


def _stop(live_jobs: LiveJobs, command: Stop) -> Job:
    live = live_jobs.jobs.get(command.job_id)
    if live is None:
        raise WrongState("the job has ended already")
    begin_stop(live_jobs, live, Verdict(State.STOPPED, Reason.STOPPED, f"stopped by {command.by}"))
    return live.job


def _delete(live_jobs: LiveJobs, command: Delete) -> Job:
    job = _find_undeleted(live_jobs, command)
    for trial in command.trials:
        known = live_jobs.known(trial.id, trial)
        if known and not known.deleted:
            _delete_job(live_jobs, known, command.by)
    return _delete_job(live_jobs, job, command.by)


def _delete_job(live_jobs: LiveJobs, job: Job, by: str) -> Job:
    live = live_jobs.jobs.get(job.id)
    job.deleted = max(live_jobs.now, job.updated)
    live_jobs.change(job)
    live_jobs.handles.pop((job.project, job.scope, job.handle), None)
    live_jobs.event(job, EventKind.DELETED, f"deleted by {by}")
    if live:
        begin_stop(live_jobs, live, Verdict(State.STOPPED, Reason.STOPPED, f"deleted by {by}"))
    else:
        remove(live_jobs, job)
    return job


def _amend(live_jobs: LiveJobs, command: Amend) -> Job:
    job = _find_undeleted(live_jobs, command)
    live = live_jobs.jobs.get(job.id)
    if command.priority is not None and command.priority != job.priority:
        if live is None:
            raise WrongState("the job has already ended: its priority cannot be changed")
        was, job.priority = job.priority, command.priority
        live_jobs.placed.changes_priority(live, was)
        if job.state is State.QUEUED and not live.is_search:
            live_jobs.enqueue(live)
        for trial in live.trials.values():
            if trial.child in live_jobs.jobs:
                _amend(live_jobs, Amend(trial.child, command.by, None, priority=command.priority))
        live_jobs.event(job, EventKind.CHANGED, f"priority {was} → {job.priority}, set by {command.by}")
    if command.note:
        live_jobs.event(job, EventKind.NOTE, command.note)
    if command.document is not None:
        live_jobs.turn.batch.documents.append((job.id, command.document))
    if command.labels is not None:
        live_jobs.turn.batch.labels.append((job.id, command.labels))
    live_jobs.change(job)
    return job


def _find_undeleted(live_jobs: LiveJobs, command: Delete | Amend) -> Job:
    job = live_jobs.known(command.job_id, command.stored)
    if job is None or job.deleted:
        raise NotFound("no such job")
    return job
