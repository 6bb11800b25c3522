"""Stops jobs: a gang, or a search with all its trials."""

from turnout.control.ends import decide, end_job, retry_after_attempt, stop_gang
from turnout.control.live_job import LiveJob
from turnout.control.live_jobs import LiveJobs
from turnout.control.turn import StopGang
from turnout.control.verdict import Verdict
from turnout.job import EventKind, Reason, ReplicaState, State, Trial, TrialState


def begin_stop(live_jobs: LiveJobs, live: LiveJob, verdict: Verdict) -> None:
    """Idempotent. The first verdict stands, unless it would have led to a retry."""
    if live.is_search:
        _stop_search(live_jobs, live, verdict)
        return
    if live.job.state is State.QUEUED:
        live_jobs.queues[live.engine].remove(live.job.id)
        live.verdict = verdict
        end_job(live_jobs, live)
        return
    if live.verdict and retry_after_attempt(live):
        live.verdict = None
    elif live.job.state is State.STOPPING:
        return
    stop_gang(live_jobs, live, verdict)


def stop_one_trial(live_jobs: LiveJobs, trial: Trial, why: str) -> None:
    """Stops the trial's job. The trial is finished once its result is known."""
    if trial.state is not TrialState.STOPPING:
        trial.state = TrialState.STOPPING
        trial.message = why
        live_jobs.change_trial(trial)
    child = live_jobs.jobs.get(trial.child)
    if child:
        begin_stop(live_jobs, child, Verdict(State.STOPPED, Reason.STOPPED, why))


def end_if_over(live_jobs: LiveJobs, live: LiveJob) -> None:
    """Ends a search that has no more trials to start or to finish. Its message names the best trial in any case."""
    if live.verdict is None or live.trials:
        return
    message = live.verdict.message
    if live.best and live.best not in message:
        live.verdict = live.verdict._replace(message=f"{message}; {live.best}" if message else live.best)
    end_job(live_jobs, live)


def end_overdue(live_jobs: LiveJobs) -> None:
    """Ends searches that have reached their time limit."""
    for live in list(live_jobs.begun_searches.values()):
        if live.overdue_at is not None and live.overdue_at <= live_jobs.steady:
            why = f"ran into its time limit of {live.spec.policy.time_limit:g} seconds"
            begin_stop(live_jobs, live, Verdict(State.FAILED, Reason.TIME_LIMIT, why))


def end_broken(live_jobs: LiveJobs, job_id: int, why: str) -> None:
    """Ends a job with a bad record at once: its replicas are stopped, and later reports about it are ignored."""
    live = live_jobs.jobs.get(job_id)
    if live is None:
        return
    verdict = Verdict(State.FAILED, Reason.NODE_LOST, why)
    if live.is_search:
        begin_stop(live_jobs, live, verdict)
        return
    live_jobs.queues[live.engine].remove(job_id)
    if live.job.attempt and live.job.state is not State.QUEUED:
        live_jobs.turn.instructions.append(StopGang(live.engine, live.job.current, live.spec.policy.grace))
    for replica in live.running():
        ended = max(live_jobs.now, replica.started or live.began_after)
        replica.state, replica.ended = ReplicaState.FAILED, ended
        replica.message = "was abandoned: the job's record cannot be processed"
        live_jobs.change_replica(replica)
    live_jobs.pools[live.engine].give(live.placement)
    live_jobs.placed.remove(job_id)
    live_jobs.finishing.pop(job_id, None)
    live.verdict = verdict
    end_job(live_jobs, live)


def _stop_search(live_jobs: LiveJobs, live: LiveJob, verdict: Verdict) -> None:
    if live.job.deleted:
        _delete_trials(live_jobs, live, verdict.message)
    if live.verdict is not None:
        return
    decide(live_jobs, live, verdict)
    if live.trials:
        live_jobs.transitions.enter(live, State.STOPPING)
        live_jobs.event(live.job, EventKind.STOPPING, verdict.message)
    for trial in live.trials.values():
        stop_one_trial(live_jobs, trial, verdict.message)
    end_if_over(live_jobs, live)


def _delete_trials(live_jobs: LiveJobs, live: LiveJob, why: str) -> None:
    """The delete command lists the stored trials; this one may have begun in the same turn."""
    for trial in live.trials.values():
        child = live_jobs.jobs.get(trial.child)
        if child and not child.job.deleted:
            child.job.deleted = max(live_jobs.now, child.job.updated)
            live_jobs.change(child.job)
            live_jobs.handles.pop((child.job.project, child.job.scope, child.job.handle), None)
            live_jobs.event(child.job, EventKind.DELETED, why)
