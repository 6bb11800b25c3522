"""The states of a job and of its replicas, and the closed set of reasons why one ended."""

from enum import StrEnum


class State(StrEnum):
    QUEUED = "queued"
    PREPARING = "preparing"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"


LIVE = frozenset({State.QUEUED, State.PREPARING, State.RUNNING, State.STOPPING})
ENDED = frozenset({State.SUCCEEDED, State.FAILED, State.STOPPED})


class Reason(StrEnum):
    """Why a job ended. Every dialect maps each of them to a code of its own."""

    SUCCEEDED = "succeeded"
    PROGRAM_FAILED = "program failed"
    PROGRAM_NOT_FOUND = "program not found"
    KILLED = "killed by a signal"
    OUT_OF_MEMORY = "out of memory"
    TIME_LIMIT = "time limit"
    DISK_LIMIT = "disk limit"
    STOPPED = "stopped"
    PREEMPTED = "preempted"
    NODE_LOST = "node lost"
    STAGING_FAILED = "staging failed"
    REFUSED = "refused by the engine"
    HUNG = "hung"
    WAITED = "waited too long"


class ReplicaState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
