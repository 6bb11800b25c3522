"""Which instructions of a turn are still to be carried out if its commit failed.

The database may have written the turn although it did not say so, for example because the connection broke.
"""

from turnout.control.live_jobs import LiveJobs
from turnout.control.turn import Forget, Instruction, RestartReplica, Save, StartGang, StopGang
from turnout.job import Attempt, ReplicaState, State


def is_due(live_jobs: LiveJobs, instruction: Instruction) -> bool:
    """Whether the store, from which `live_jobs` was just loaded, has the change that led to the instruction."""
    match instruction:
        case StartGang(_, launch):
            live = live_jobs.live(launch.attempt)
            return live is not None and live.job.state is State.PREPARING
        case RestartReplica(_, launch, name, restarts):
            live = live_jobs.live(launch.attempt)
            replica = live and live.replicas.get(name)
            return bool(replica and replica.state is ReplicaState.WAITING and replica.restarts == restarts)
        case StopGang(_, attempt):
            live = live_jobs.live(attempt)
            if live:
                return live.job.state is State.STOPPING or live.finish_at is not None
            return _is_over(live_jobs, attempt)
        case Save(_, attempt):
            live = live_jobs.live(attempt)
            return live is not None and not live.running()
        case Forget(_, attempt):
            return live_jobs.live(attempt) is None and _is_over(live_jobs, attempt)
        case _:
            # Remove: the next sweep does it.
            return False


def _is_over(live_jobs: LiveJobs, attempt: Attempt) -> bool:
    """Whether the attempt, which is not the current one, was stored. The number of one that was not is used again."""
    live = live_jobs.jobs.get(attempt.job)
    if live:
        return attempt.number <= live.job.attempt
    return attempt.job not in live_jobs.trials
