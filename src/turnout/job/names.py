"""The name that a replica has for its peers and for people: host name inside, pod name in the logs."""

import hashlib
import re

from turnout.job.launch import ReplicaName

_NOT_IN_NAMES = re.compile("[^a-z0-9.-]")
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def host_name(job_id: int, job_name: str, replica: ReplicaName) -> str:
    """`<job>-<role>-<4 of the job's>-<index>-<5 of its own>`, the same whenever it is asked for."""
    name = _NOT_IN_NAMES.sub("-", job_name[:40].lower())
    own = _letters(f"{job_id}/{replica}", 5)
    return f"{name}-{replica.role}-{_letters(str(job_id), 4)}-{replica.index}-{own}"


def _letters(text: str, count: int) -> str:
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
    found = ""
    for _ in range(count):
        number, rest = divmod(number, len(_LETTERS))
        found += _LETTERS[rest]
    return found
