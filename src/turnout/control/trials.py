"""The trials of a search, each of which is a job: begun with it in one commit, over when it is known how it did."""

from turnout.control.board import Board
from turnout.control.live import Live
from turnout.control.stopping import begin_stop, end_if_over, stop_one_trial
from turnout.control.turn import Conclude, Finish, Forget, StopTrial
from turnout.control.verdict import Verdict
from turnout.errors import AlreadyExists, NotFound, WrongState
from turnout.job import Attempt, EventKind, Job, State, Trial, TrialState


def begin_trial(board: Board, job: Job, trial: Trial) -> None:
    """`job` is about to be admitted as what tries it.

    Raises WrongState if the search wants no more, or AlreadyExists.
    """
    search = board.searches.get(trial.job)
    if search is None or search.verdict is not None:
        raise WrongState("the search has ended, or is about to")
    if trial.number in search.trials:
        raise AlreadyExists(f"the search has a trial {trial.number} already")
    trial.child = job.id
    trial.created = board.now
    job.priority = search.job.priority
    search.trials[trial.number] = trial
    board.trials[job.id] = trial
    board.turn.batch.new_trials.append(trial)
    board.change_trial(trial)


def trial_started(board: Board, trial: Trial, at: int) -> None:
    """The search runs from the first one on."""
    if trial.state is TrialState.REQUESTED:
        trial.state = TrialState.ACTIVE
    trial.started = trial.started or at
    board.change_trial(trial)
    search = board.searches.get(trial.job)
    if search and search.job.state is State.QUEUED:
        search.job.state, search.job.started = State.RUNNING, at
        board.change(search.job)
        board.event(search.job, EventKind.STARTED, f"its first trial runs: {trial.called}", at)


def stop_trial(board: Board, command: StopTrial) -> Job:
    search = _search(board, command.job_id)
    trial = search.trials.get(command.number)
    if trial is None:
        raise WrongState("the trial has ended already")
    stop_one_trial(board, trial, command.why)
    return search.job


def conclude(board: Board, command: Conclude) -> Job:
    search = _search(board, command.job_id)
    trial = search.trials.get(command.number)
    if trial is None or trial.child in board.jobs:
        raise WrongState("the trial still runs" if trial else "the trial is over already")
    del search.trials[trial.number], board.trials[trial.child]
    trial.state, trial.value, trial.metrics = command.state, command.value, command.metrics
    trial.message, trial.ended = command.message, command.ended
    board.change_trial(trial)
    board.turn.batch.measurements.extend(command.measurements)
    if trial.state is TrialState.INFEASIBLE:
        board.event(search.job, EventKind.NOTE, f"trial {trial.called}: {trial.message}", trial.ended)
    if command.attempt:
        last = Attempt(trial.child, command.attempt)
        board.turn.instructions.append(Forget(search.engine, last, search.spec.debug))
    search.best = command.best or search.best
    if search.verdict is None:
        search.job.message = search.best
    board.change(search.job)
    end_if_over(board, search)
    return search.job


def finish(board: Board, command: Finish) -> Job:
    search = _search(board, command.job_id)
    begin_stop(board, search, Verdict(command.state, command.reason, command.message))
    return search.job


def _search(board: Board, job_id: int) -> Live:
    search = board.searches.get(job_id)
    if search is None:
        raise NotFound("no such search, or it has ended")
    return search
