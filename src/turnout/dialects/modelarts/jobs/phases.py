"""The table of states and reasons to ModelArts' phases, used in both directions."""

from typing import NamedTuple

from turnout.job import All, Any, Compare, Job, Query, Reason, State

CREATING = "Creating"
"""Only in the answer to a create. After that the job is pending or running."""


class Phase(NamedTuple):
    phase: str
    secondary: str


_BY_STATE: dict[State, Phase] = {
    State.QUEUED: Phase("Pending", "Queuing"),
    State.PREPARING: Phase("Pending", "Queuing"),
    State.RUNNING: Phase("Running", "Running"),
    State.STOPPING: Phase("Terminating", "Terminating"),
    State.SUCCEEDED: Phase("Completed", "Completed"),
    State.FAILED: Phase("Failed", "Failed"),
    State.STOPPED: Phase("Terminated", "Terminated"),
}

_TERMINATED = (Reason.STOPPED, Reason.TIME_LIMIT)
_BY_REASON: dict[tuple[State, Reason], Phase] = {
    # The user did not stop the job. The service ends its tasks, for example because one failed, and may retry it.
    **{(State.STOPPING, reason): _BY_STATE[State.RUNNING] for reason in Reason if reason not in _TERMINATED},
    (State.FAILED, Reason.TIME_LIMIT): Phase("Terminated", "Terminated"),
    (State.FAILED, Reason.NODE_LOST): Phase("Abnormal", "Lost"),
    (State.FAILED, Reason.REFUSED): Phase("Abnormal", "CreateFailed"),
}
"""Phases that depend on the reason as well."""

PHASES = frozenset({CREATING, *(phase.phase for phase in (*_BY_STATE.values(), *_BY_REASON.values()))})


def phase(job: Job) -> Phase:
    """The phase and the secondary phase of a job."""
    if job.reason is not None and (job.state, job.reason) in _BY_REASON:
        return _BY_REASON[job.state, job.reason]
    return _BY_STATE[job.state]


def in_phase(name: str) -> Query:
    """The jobs in a phase. `name` is one of PHASES."""
    parts: list[Query] = []
    for state, default in _BY_STATE.items():
        by_reason = {reason: other for (of, reason), other in _BY_REASON.items() if of is state}
        reasons = tuple(
            str(reason)
            for reason, other in by_reason.items()
            if (other.phase == name) != (default.phase == name)
        )
        if default.phase == name:
            parts.append(_in_state(state, reasons))
        elif reasons:
            parts.append(All(Compare("state", "=", state), Compare("reason", "in", reasons)))
    return Any(*parts)


def _in_state(state: State, excluded: tuple[str, ...]) -> Query:
    """The jobs in a state, except those with one of these reasons."""
    in_state = Compare("state", "=", state)
    if not excluded:
        return in_state
    return All(in_state, *(Compare("reason", "!=", reason) for reason in excluded))
