"""The name of a replica: its host name inside the job, its pod name in logs."""

import hashlib
import re

from turnout.job.launch import ReplicaName

_LONGEST = 63
_NOT_IN_NAMES = re.compile("[^a-z0-9.-]")


def host_name(job_id: int, job_name: str, replica: ReplicaName) -> str:
    """`<job>-<role>-<4 characters of the job>-<index>-<5 of the replica>`, always the same for a replica."""
    tail = f"-{replica.role}-{_digest(str(job_id))[:4]}-{replica.index}-{_digest(f'{job_id}/{replica}')[:5]}"
    return _NOT_IN_NAMES.sub("-", job_name[: min(40, _LONGEST - len(tail))].lower()) + tail


def short_name(job: str, replica: ReplicaName) -> str:
    """`<job>-<role>-<index>`. A role that is not valid in a host name is changed and gets a digest."""
    whole = f"{job}-{replica}"
    if len(whole) <= _LONGEST and not _NOT_IN_NAMES.search(whole):
        return whole
    tail = f"-{_digest(replica.role)[:4]}-{replica.index}"
    return _NOT_IN_NAMES.sub("-", whole.lower())[: _LONGEST - len(tail)].rstrip("-.") + tail


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
