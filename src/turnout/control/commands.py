"""What users ask for: create, stop, delete, amend. Each raises before it has changed anything, or does all of it."""

from turnout.control.board import Board
from turnout.control.ends import remove
from turnout.control.live import Live
from turnout.control.seats import counted
from turnout.control.stopping import begin_stop
from turnout.control.trials import begin_trial, conclude, finish, stop_trial
from turnout.control.turn import Amend, Command, Conclude, Create, Delete, Finish, Stop, StopTrial
from turnout.control.verdict import Verdict
from turnout.errors import AlreadyExists, NotFound, TurnoutError, Unavailable, WrongState
from turnout.job import EventKind, Job, Reason, State


def answer(board: Board, command: Command) -> Job | TurnoutError:
    try:
        match command:
            case Create():
                return create(board, command)
            case Stop():
                return _stop(board, command)
            case Delete():
                return _delete(board, command)
            case Amend():
                return _amend(board, command)
            case StopTrial():
                return stop_trial(board, command)
            case Conclude():
                return conclude(board, command)
            case Finish():
                return finish(board, command)
    except TurnoutError as error:
        return error


def create(board: Board, command: Create) -> Job:
    new = command.new
    handle = (new.project, new.scope, new.handle)
    if new.handle and (command.taken or handle in board.handles):
        raise AlreadyExists(f"a job named {new.name} exists already: delete it first, or take another name")
    engine = board.engine_of(new.cluster)
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
        created=board.now,
        updated=board.now,
    )
    live = Live(job, new.spec, engine)
    pool, wanted = board.pools[engine], live.share.gpus
    if pool.nodes and wanted > pool.total.gpus:
        there = pool.total.gpus or "none"
        raise Unavailable(f"{counted(wanted, 'GPU')} asked for, but cluster {new.cluster} has {there}")
    if command.trial:
        begin_trial(board, job, command.trial)
    board.admit(live)
    if not live.searches:
        board.enqueue(live)
    board.turn.batch.created.append((job, new))
    board.event(job, EventKind.CREATED, f"created on {new.cluster}")
    for note in new.notes:
        board.event(job, EventKind.NOTE, note)
    return job


def _stop(board: Board, command: Stop) -> Job:
    live = board.jobs.get(command.job_id)
    if live is None:
        raise WrongState("the job has ended already")
    begin_stop(board, live, Verdict(State.STOPPED, Reason.STOPPED, f"stopped by {command.by}"))
    return live.job


def _delete(board: Board, command: Delete) -> Job:
    job = _not_deleted(board, command)
    for trial in command.trials:
        known = board.known(trial.id, trial)
        if known and not known.deleted:
            _delete_one(board, known, command.by)
    return _delete_one(board, job, command.by)


def _delete_one(board: Board, job: Job, by: str) -> Job:
    live = board.jobs.get(job.id)
    job.deleted = board.now
    board.change(job)
    board.handles.pop((job.project, job.scope, job.handle), None)
    board.event(job, EventKind.DELETED, f"deleted by {by}")
    if live:
        begin_stop(board, live, Verdict(State.STOPPED, Reason.STOPPED, f"deleted by {by}"))
    else:
        remove(board, job)
    return job


def _amend(board: Board, command: Amend) -> Job:
    job = _not_deleted(board, command)
    live = board.jobs.get(job.id)
    if command.priority is not None and command.priority != job.priority:
        if live is None:
            raise WrongState("the job has ended already: its priority cannot be changed")
        was, job.priority = job.priority, command.priority
        if job.state is State.QUEUED and not live.searches:
            board.enqueue(live)
        for trial in live.trials.values():
            if trial.child in board.jobs:
                _amend(board, Amend(trial.child, command.by, None, priority=command.priority))
        board.event(job, EventKind.CHANGED, f"priority {was} → {job.priority}, set by {command.by}")
    if command.note:
        board.event(job, EventKind.NOTE, command.note)
    if command.document is not None:
        board.turn.batch.documents.append((job.id, command.document))
    if command.labels is not None:
        board.turn.batch.labels.append((job.id, command.labels))
    board.change(job)
    return job


def _not_deleted(board: Board, command: Delete | Amend) -> Job:
    job = board.known(command.job_id, command.stored)
    if job is None or job.deleted:
        raise NotFound("no such job")
    return job
