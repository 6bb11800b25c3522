"""A job's tasks, which are its replicas: their names, addresses and attempts."""

from collections.abc import Iterable, Sequence

from turnout.dialects.modelarts.errors import INVALID
from turnout.errors import Invalid
from turnout.job import Replica, ReplicaName, Spec

HOST_IP = "127.0.0.1"
"""The address of the machine, as all replicas of the local engine see it."""

Document = dict[str, object]


def render(attempts: Iterable[Sequence[Replica]], host_ip: str = HOST_IP) -> list[Document]:
    """A row for each task of each attempt, in order."""
    return [
        {
            "task": str(replica.name),
            "ip": replica.address,
            "host_ip": host_ip,
            "schedule_count": replica.attempt,
        }
        for replicas in attempts
        for replica in replicas
    ]


def replica_name(spec: Spec, task_id: str) -> ReplicaName:
    """The replica of a task. Raises Invalid that names the job's tasks."""
    for role in spec.roles:
        prefix, _, number = task_id.rpartition("-")
        known = number.isascii() and number.isdecimal() and str(int(number[:9] or 0)) == number
        if prefix == role.name and known and int(number) < role.replicas:
            return ReplicaName(role.name, int(number))
    names = ", ".join(_range(role.name, role.replicas) for role in spec.roles)
    raise Invalid(
        f"task_id {task_id!r} is not a task of this job; its tasks are {names}.",
        field="task_id",
        code=INVALID,
    )


def _range(role: str, replicas: int) -> str:
    return f"{role}-0" if replicas == 1 else f"{role}-0 to {role}-{replicas - 1}"
