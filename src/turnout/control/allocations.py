"""Converts a job's allocations to replica rows and back, and describes them for users."""

from turnout.control.live_job import LiveJob
from turnout.control.node_pool import Allocation, NodePool, Placement
from turnout.job import Job, Replica, ReplicaName


def stored_allocations(live: LiveJob) -> Placement:
    """The placement that the stored rows describe. Until the engine reports its nodes, each replica is charged what its
    role requests.
    """
    shares = {role.name: role.resources.share for role in live.spec.roles}
    return {
        name: Allocation(
            replica.node, shares[name.role], tuple(int(gpu) for gpu in replica.gpus.split(",") if gpu)
        )
        for name, replica in live.replicas.items()
    }


def placed_replica(job: Job, name: ReplicaName, allocation: Allocation) -> Replica:
    gpus = ",".join(str(gpu) for gpu in allocation.gpus)
    return Replica(job.id, job.attempt, name.role, name.index, node=allocation.node, gpus=gpus)


def describe_placement(live: LiveJob, placement: Placement, pool: NodePool) -> str:
    """The message of the event that says where the next attempt runs."""
    nodes = sorted({allocation.node for allocation in placement.values()})
    text = f"attempt {live.job.attempt + 1}: {counted(len(placement), 'replica')} on {', '.join(nodes)}"
    if pool.fit(live.parts).alone:
        text += "; it asks for more than there is, so it takes the whole machine and runs alone"
    return text


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
