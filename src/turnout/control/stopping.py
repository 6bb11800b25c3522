"""How a job is ended that nobody wants any more: a gang, or a search with all that it tries."""

from turnout.control.board import Board
from turnout.control.ends import decide, end_job, starts_over, wind_up
from turnout.control.live import Live
from turnout.control.verdict import Verdict
from turnout.job import EventKind, Reason, State, Trial, TrialState


def begin_stop(board: Board, live: Live, verdict: Verdict) -> None:
    """Idempotent; the first verdict stands, unless the job was to start over after it."""
    if live.searches:
        _stop_search(board, live, verdict)
        return
    if live.job.state is State.QUEUED:
        board.queues[live.engine].remove(live.job.id)
        live.verdict = verdict
        end_job(board, live)
        return
    if live.verdict and starts_over(live):
        live.verdict = None
    elif live.job.state is State.STOPPING:
        return
    wind_up(board, live, verdict)


def stop_one_trial(board: Board, trial: Trial, why: str) -> None:
    """Its job ends now or soon; that the trial is over is told when it is known how it did."""
    if trial.state is not TrialState.STOPPING:
        trial.state = TrialState.STOPPING
        trial.message = why
        board.change_trial(trial)
    child = board.jobs.get(trial.child)
    if child:
        begin_stop(board, child, Verdict(State.STOPPED, Reason.STOPPED, why))


def end_if_over(board: Board, live: Live) -> None:
    """A search ends when it tries no more and all its trials are over. Its best one is named in any case."""
    if live.verdict is None or live.trials:
        return
    message = live.verdict.message
    if live.best and live.best not in message:
        live.verdict = live.verdict._replace(message=f"{message}; {live.best}" if message else live.best)
    end_job(board, live)


def end_overdue(board: Board) -> None:
    """Searches that have run as long as they may."""
    for live in list(board.searches.values()):
        if live.overdue_at is not None and live.overdue_at <= board.now:
            why = f"ran into its time limit of {live.spec.policy.time_limit:g} seconds"
            begin_stop(board, live, Verdict(State.FAILED, Reason.TIME_LIMIT, why))


def _stop_search(board: Board, live: Live, verdict: Verdict) -> None:
    if live.job.deleted:
        _delete_trials(board, live, verdict.message)
    if live.verdict is not None:
        return
    decide(board, live, verdict)
    if live.trials:
        live.job.state = State.STOPPING
        board.event(live.job, EventKind.STOPPING, verdict.message)
    for trial in live.trials.values():
        stop_one_trial(board, trial, verdict.message)
    end_if_over(board, live)


def _delete_trials(board: Board, live: Live, why: str) -> None:
    """Whoever deletes a search names those that are in the store; this one may have begun in the same turn."""
    for trial in live.trials.values():
        child = board.jobs.get(trial.child)
        if child and not child.job.deleted:
            child.job.deleted = board.now
            board.change(child.job)
            board.handles.pop((child.job.project, child.job.scope, child.job.handle), None)
            board.event(child.job, EventKind.DELETED, why)
