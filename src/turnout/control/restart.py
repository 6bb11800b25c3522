"""Restarts one replica in place while the rest of its gang goes on."""

from turnout.control.live_job import LiveJob
from turnout.control.live_jobs import LiveJobs
from turnout.control.retry import RetryNumber
from turnout.control.turn import RestartReplica
from turnout.job import EventKind, Replica, ReplicaState


def restart_in_place(
    live_jobs: LiveJobs, live: LiveJob, replica: Replica, number: RetryNumber, at: int
) -> None:
    """Restarts a replica that has just ended. Its row now describes the next start; an event records this end."""
    text = f"{replica.name} {replica.message}; it is restarted in place ({number})"
    live_jobs.event(live.job, EventKind.RESTARTED, text, at)
    replica.restarts += 1
    replica.state = ReplicaState.WAITING
    replica.pid = replica.ended = replica.exit_code = replica.signal = None
    replica.message = ""
    live_jobs.change_replica(replica)
    live_jobs.turn.instructions.append(restart_instruction(live, replica))


def restart_instruction(live: LiveJob, replica: Replica) -> RestartReplica:
    return RestartReplica(live.engine, live.launch(), replica.name, replica.restarts)
