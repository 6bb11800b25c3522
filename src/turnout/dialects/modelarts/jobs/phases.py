"""Our states and reasons as ModelArts' phases, in both directions, from one table."""

from typing import NamedTuple

from turnout.job import All, Any, Compare, Job, Query, Reason, State

CREATING = "Creating"
"""What the answer to a create says. No job is found in it later: it waits or runs as soon as it is there."""


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
    # Nobody terminates it: the rest of a gang is ended after a failure, and it may start over.
    **{(State.STOPPING, why): _BY_STATE[State.RUNNING] for why in Reason if why not in _TERMINATED},
    (State.FAILED, Reason.TIME_LIMIT): Phase("Terminated", "Terminated"),
    (State.FAILED, Reason.NODE_LOST): Phase("Abnormal", "Lost"),
    (State.FAILED, Reason.REFUSED): Phase("Abnormal", "CreateFailed"),
}
"""Where the reason says more than the state."""

PHASES = frozenset({CREATING, *(phase.phase for phase in (*_BY_STATE.values(), *_BY_REASON.values()))})


def phase(job: Job) -> Phase:
    """The phase and the secondary phase of a job."""
    if job.reason is not None and (job.state, job.reason) in _BY_REASON:
        return _BY_REASON[job.state, job.reason]
    return _BY_STATE[job.state]


def in_phase(name: str) -> Query:
    """Which jobs are in a phase. `name` is one of PHASES."""
    parts: list[Query] = []
    for state, usual in _BY_STATE.items():
        others = {why: one for (of, why), one in _BY_REASON.items() if of is state}
        reasons = tuple(
            str(why) for why, one in others.items() if (one.phase == name) != (usual.phase == name)
        )
        if usual.phase == name:
            parts.append(_usual(state, reasons))
        elif reasons:
            parts.append(All(Compare("state", "=", state), Compare("reason", "in", reasons)))
    return Any(*parts)


def _usual(state: State, but: tuple[str, ...]) -> Query:
    """In a state, for any reason but these."""
    here = Compare("state", "=", state)
    if not but:
        return here
    return All(here, *(Compare("reason", "!=", reason) for reason in but))
