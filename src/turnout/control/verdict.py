"""Derives a job's outcome from the end of a replica."""

import signal
from typing import NamedTuple

from turnout.job import Cause, Ended, Job, Reason, State


class Verdict(NamedTuple):
    state: State
    reason: Reason
    message: str


_REASONS = {
    Cause.EXIT: Reason.PROGRAM_FAILED,
    Cause.STOPPED: Reason.STOPPED,
    Cause.TIME_LIMIT: Reason.TIME_LIMIT,
    Cause.OUT_OF_MEMORY: Reason.OUT_OF_MEMORY,
    Cause.DISK_LIMIT: Reason.DISK_LIMIT,
    Cause.NOT_FOUND: Reason.PROGRAM_NOT_FOUND,
    Cause.STAGING: Reason.STAGING_FAILED,
    Cause.PREEMPTED: Reason.PREEMPTED,
    Cause.REFUSED: Reason.REFUSED,
    Cause.LOST: Reason.NODE_LOST,
}

_STATES = {Reason.SUCCEEDED: State.SUCCEEDED, Reason.STOPPED: State.STOPPED}


def judge(end: Ended) -> Verdict:
    """The job's outcome if this unrequested failure decides it."""
    reason = _REASONS[end.cause]
    if end.cause is Cause.EXIT and end.signal is not None:
        reason = Reason.KILLED
    return Verdict(_STATES.get(reason, State.FAILED), reason, f"{end.replica} {explain_end(end)}")


def stored_verdict(job: Job) -> Verdict | None:
    """The verdict that an earlier service stored."""
    if job.reason is None:
        return None
    return Verdict(_STATES.get(job.reason, State.FAILED), job.reason, job.message)


def without_results(verdict: Verdict, trouble: str) -> Verdict:
    """The outcome if the job's outputs cannot be stored."""
    why = f"its outputs could not be stored: {trouble}"
    if verdict.state is State.SUCCEEDED:
        return Verdict(State.FAILED, Reason.STAGING_FAILED, why)
    return verdict._replace(message=f"{verdict.message}; {why}" if verdict.message else why)


def explain_end(end: Ended) -> str:
    """`exited with code 3`, or the engine's message if there is one."""
    if end.cause is Cause.EXIT:
        text = (
            f"exited with code {end.code}" if end.signal is None else f"was killed by {_signal(end.signal)}"
        )
    else:
        text = _TEXTS[end.cause]
    return f"{text}: {end.message}" if end.message else text


_TEXTS = {
    Cause.STOPPED: "was stopped",
    Cause.TIME_LIMIT: "ran into its time limit",
    Cause.OUT_OF_MEMORY: "ran out of memory",
    Cause.DISK_LIMIT: "ran into its disk limit",
    Cause.NOT_FOUND: "could not be started",
    Cause.STAGING: "could not get its files",
    Cause.PREEMPTED: "was preempted",
    Cause.REFUSED: "was refused by the engine",
    Cause.LOST: "was lost",
}


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
