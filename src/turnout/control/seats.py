"""A job's seats: as rows, from rows, and in words."""

from turnout.control.live import Live
from turnout.control.pool import Placement, Pool, Seat
from turnout.job import Job, Replica, ReplicaName


def remembered_seats(live: Live) -> Placement:
    shares = {role.name: role.resources.share for role in live.spec.roles}
    return {
        name: Seat(replica.node, shares[name.role], tuple(int(gpu) for gpu in replica.gpus.split(",") if gpu))
        for name, replica in live.replicas.items()
    }


def seated(job: Job, name: ReplicaName, seat: Seat) -> Replica:
    gpus = ",".join(str(gpu) for gpu in seat.gpus)
    return Replica(job.id, job.attempt, name.role, name.index, node=seat.node, gpus=gpus)


def words_of(live: Live, pool: Pool) -> str:
    nodes = sorted({seat.node for seat in live.placement.values()})
    text = f"attempt {live.job.attempt}: {counted(len(live.replicas), 'replica')} on {', '.join(nodes)}"
    if pool.oversized(live.share):
        text += "; it asks for more than there is, so it counts as the whole machine and runs alone"
    return text


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
