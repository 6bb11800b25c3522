"""Jobs and log lines in TI-A's form: states, messages, times, pods."""

import hashlib
import time
import uuid
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from turnout.access import tencent_account as account
from turnout.dialects.tia import wire
from turnout.job import Job, Reason, Replica, ReplicaName, ReplicaState, State, host_name, to_uuid
from turnout.service import JobView, Line

CONTAINER = "tensorflow"
CREATING = "creating"

_decode = msgspec.json.Decoder(wire.Job).decode
_SECOND = 1_000_000_000

STATES: dict[State, str] = {
    State.QUEUED: "Created",
    State.PREPARING: "Created",
    State.RUNNING: "Running",
    State.STOPPING: "Running",
    State.SUCCEEDED: "Succeeded",
    State.FAILED: "Failed",
    State.STOPPED: "Failed",
}

REPLICA_STATES: dict[ReplicaState, str] = {
    ReplicaState.FAILED: "Failed",
    ReplicaState.RUNNING: "Running",
    ReplicaState.WAITING: "Created",
    ReplicaState.STOPPED: "Stopped",
    ReplicaState.SUCCEEDED: "Succeeded",
}
"""Ordered by weight: the state of a role is the first one that a replica of it has."""

_ROLE_ORDER = ("master", "worker", "ps")

# The states of the replicas already show these.
_SELF_EVIDENT = frozenset({Reason.SUCCEEDED, Reason.PROGRAM_FAILED})


def created_job(job: Job, request: wire.JobFields, uptime: float) -> wire.Job:
    """The response to CreateJob: the request, the time with Go's monotonic part, and no state."""
    rendered = wire.Job(**msgspec.structs.asdict(request))
    seconds, fraction = divmod(job.created, _SECOND)
    rendered.create_time = f"{_china_time(seconds)}.{fraction:09d} +0800 CST m=+{uptime:.9f}"
    rendered.message = CREATING
    return rendered


def described_job(view: JobView) -> wire.Job:
    job = view.job
    rendered = _decode(view.document)
    rendered.create_time = go_time(job.created)
    rendered.start_time = None if job.started is None else go_time(job.started)
    rendered.end_time = None if job.ended is None else go_time(job.ended)
    rendered.state = STATES[job.state]
    rendered.message = message(job, view.replicas)
    rendered.app_id = account.app_id(job.project)
    rendered.uin = account.uin(job.project)
    rendered.id = to_uuid(job.id)
    return rendered


def message(job: Job, replicas: Sequence[Replica]) -> str:
    """`[MASTER/Failed : Failed/1] ;[WORKER/Running : Running/2]`, then the reason that the states do not show."""
    if job.state is State.SUCCEEDED:
        return ""
    roles = sorted({replica.role for replica in replicas}, key=_order)
    parts = [_role_message(role, [r.state for r in replicas if r.role == role]) for role in roles]
    if job.message and job.reason not in _SELF_EVIDENT:
        parts.append(job.message)
    return " ;".join(parts)


def logs(view: JobView, lines: Sequence[Line]) -> list[wire.Log]:
    job = view.job
    namespace = str(account.app_id(job.project))
    pods = {
        name: (pod_id(job, name), host_name(job.id, job.name, name))
        for name in {line.replica for line in lines}
    }
    return [
        wire.Log(CONTAINER, line.text, namespace, *pods[line.replica], rfc3339(line.at)) for line in lines
    ]


def pod_id(job: Job, replica: ReplicaName) -> str:
    digest = hashlib.blake2b(f"{job.id}/{replica}".encode(), digest_size=16, person=b"pod").digest()
    return str(uuid.UUID(bytes=digest, version=4))


def go_time(at: int) -> str:
    """Go's `2006-01-02 15:04:05.999999999 -0700 MST`, in China."""
    seconds, fraction = divmod(at, _SECOND)
    return f"{_china_time(seconds)}{_fraction(fraction)} +0800 CST"


def rfc3339(at: int) -> str:
    seconds, fraction = divmod(at, _SECOND)
    return f"{_utc_time(seconds)}{_fraction(fraction)}Z"


def _order(role: str) -> tuple[int, str]:
    return (_ROLE_ORDER.index(role) if role in _ROLE_ORDER else len(_ROLE_ORDER), role)


def _role_message(role: str, states: list[ReplicaState]) -> str:
    counts = [(text, states.count(state)) for state, text in REPLICA_STATES.items() if state in states]
    listed = ", ".join(f"{text}/{count}" for text, count in counts)
    return f"[{role.upper()}/{counts[0][0]} : {listed}]"


@lru_cache(maxsize=64)
def _china_time(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds + 8 * 3600))


@lru_cache(maxsize=64)
def _utc_time(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _fraction(nanoseconds: int) -> str:
    return f".{nanoseconds:09d}".rstrip("0") if nanoseconds else ""
