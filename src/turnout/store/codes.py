"""The numbers for states, reasons and kinds in the tables. A number is never reused."""

from turnout.job import EventKind, Reason, ReplicaState, State, TrialState

FIRST_ENDED = 10
"""Smaller codes are the live states; the index of live jobs is made with this number."""

STATES = {
    State.QUEUED: 0,
    State.PREPARING: 1,
    State.RUNNING: 2,
    State.STOPPING: 3,
    State.SUCCEEDED: 10,
    State.FAILED: 11,
    State.STOPPED: 12,
}

REASONS = {
    Reason.SUCCEEDED: 0,
    Reason.PROGRAM_FAILED: 1,
    Reason.PROGRAM_NOT_FOUND: 2,
    Reason.KILLED: 3,
    Reason.OUT_OF_MEMORY: 4,
    Reason.TIME_LIMIT: 5,
    Reason.STOPPED: 6,
    Reason.PREEMPTED: 7,
    Reason.NODE_LOST: 8,
    Reason.STAGING_FAILED: 9,
    Reason.REFUSED: 10,
    Reason.HUNG: 11,
    Reason.WAITED: 12,
    Reason.DISK_LIMIT: 13,
}

REPLICA_STATES = {
    ReplicaState.WAITING: 0,
    ReplicaState.RUNNING: 1,
    ReplicaState.SUCCEEDED: 10,
    ReplicaState.FAILED: 11,
    ReplicaState.STOPPED: 12,
}

KINDS = {
    EventKind.CREATED: 0,
    EventKind.NOTE: 1,
    EventKind.PLACED: 2,
    EventKind.STARTED: 3,
    EventKind.STOPPING: 4,
    EventKind.RETRIED: 5,
    EventKind.ENDED: 6,
    EventKind.TRIMMED: 7,
    EventKind.DELETED: 8,
    EventKind.SAVED: 9,
    EventKind.PREEMPTED: 10,
    EventKind.CHANGED: 11,
    EventKind.HUNG: 12,
    EventKind.RESTARTED: 13,
    EventKind.IMAGE: 14,
}

TRIAL_STATES = {
    TrialState.REQUESTED: 0,
    TrialState.ACTIVE: 1,
    TrialState.STOPPING: 2,
    TrialState.SUCCEEDED: 10,
    TrialState.INFEASIBLE: 11,
}
