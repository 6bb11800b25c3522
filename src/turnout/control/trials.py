"""The trials of a search. Each is a job: both begin in one commit, and the trial ends once its result is known."""

from turnout.control.live_job import LiveJob
from turnout.control.live_jobs import LiveJobs
from turnout.control.stopping import begin_stop, end_if_over, stop_one_trial
from turnout.control.turn import FinishSearch, FinishTrial, Forget, StopTrial
from turnout.control.verdict import Verdict
from turnout.errors import AlreadyExists, NotFound, WrongState
from turnout.job import Attempt, EventKind, Job, State, Trial, TrialState


def begin_trial(live_jobs: LiveJobs, job: Job, trial: Trial) -> None:
    """`job` runs the trial and is about to be admitted.

    Raises WrongState if the search starts no more trials, or AlreadyExists.
    """
    search = live_jobs.searches.get(trial.job)
    if search is None or search.verdict is not None:
        raise WrongState("the search has ended or is ending")
    if trial.number in search.trials:
        raise AlreadyExists(f"the search already has a trial {trial.number}")
    trial.child = job.id
    job.created = job.updated = trial.created = max(live_jobs.now, search.job.created)
    job.priority = search.job.priority
    search.trials[trial.number] = trial
    live_jobs.trials[job.id] = trial
    live_jobs.turn.batch.new_trials.append(trial)
    live_jobs.change_trial(trial)


def trial_started(live_jobs: LiveJobs, trial: Trial, at: int) -> None:
    """A search counts as running once its first trial runs."""
    if trial.state is TrialState.REQUESTED:
        trial.state = TrialState.ACTIVE
    trial.started = trial.started or max(at, trial.created)
    live_jobs.change_trial(trial)
    search = live_jobs.searches.get(trial.job)
    if search and search.job.state is State.QUEUED:
        live_jobs.transitions.enter(search, State.RUNNING)
        search.job.started = trial.started
        live_jobs.begin_search(search, live_jobs.by_steady(at))
        live_jobs.change(search.job)
        live_jobs.event(
            search.job, EventKind.STARTED, f"its first trial runs: {trial.display_name}", trial.started
        )


def stop_trial(live_jobs: LiveJobs, command: StopTrial) -> Job:
    search = _search(live_jobs, command.job_id)
    trial = search.trials.get(command.number)
    if trial is None:
        raise WrongState("the trial has already ended")
    stop_one_trial(live_jobs, trial, command.why)
    return search.job


def finish_trial(live_jobs: LiveJobs, command: FinishTrial) -> Job:
    search = _search(live_jobs, command.job_id)
    trial = search.trials.get(command.number)
    if trial is None or trial.child in live_jobs.jobs:
        raise WrongState("the trial still runs" if trial else "the trial is over already")
    del search.trials[trial.number], live_jobs.trials[trial.child]
    trial.state, trial.value, trial.metrics = command.state, command.value, command.metrics
    trial.message, trial.ended = command.message, max(command.ended, trial.started or trial.created)
    live_jobs.change_trial(trial)
    live_jobs.turn.batch.measurements.extend(command.measurements)
    if trial.state is TrialState.INFEASIBLE:
        live_jobs.event(
            search.job, EventKind.NOTE, f"trial {trial.display_name}: {trial.message}", trial.ended
        )
    if command.attempt:
        last = Attempt(trial.child, command.attempt)
        live_jobs.turn.instructions.append(Forget(search.engine, last, search.spec.debug))
    search.best = command.best or search.best
    if search.verdict is None:
        search.job.message = search.best
    live_jobs.change(search.job)
    end_if_over(live_jobs, search)
    return search.job


def finish_search(live_jobs: LiveJobs, command: FinishSearch) -> Job:
    search = _search(live_jobs, command.job_id)
    begin_stop(live_jobs, search, Verdict(command.state, command.reason, command.message))
    return search.job


def _search(live_jobs: LiveJobs, job_id: int) -> LiveJob:
    search = live_jobs.searches.get(job_id)
    if search is None:
        raise NotFound("no such search, or it has ended")
    return search
