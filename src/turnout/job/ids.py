"""One id for every cloud: a 63-bit number ordered by time.

It is `milliseconds << 20 | counter`: 19 decimal digits, which is how Vertex spells it. TI-A and
ModelArts spell the same bits as a UUID, so that either form finds the job without a second lookup.
"""

import uuid

_COUNTER_BITS = 20


class IdMaker:
    """Makes ids that always grow, also when the clock steps back."""

    def __init__(self, last: int = 0) -> None:
        self._last = last

    def next(self, now_ns: int) -> int:
        self._last = max(self._last + 1, (now_ns // 1_000_000) << _COUNTER_BITS)
        return self._last


def to_uuid(job_id: int) -> str:
    """The id as a UUID of version 8 (RFC 9562: the bits are ours to define)."""
    high, middle, low = job_id >> 16, (job_id >> 4) & 0xFFF, job_id & 0xF
    return str(uuid.UUID(int=high << 80 | 8 << 76 | middle << 64 | 0b10 << 62 | low << 58))


def from_uuid(text: str) -> int | None:
    """The id inside a UUID of ours; None for any other text."""
    try:
        bits = uuid.UUID(text).int
    except ValueError:
        return None
    job_id = (bits >> 80) << 16 | ((bits >> 64) & 0xFFF) << 4 | (bits >> 58) & 0xF
    return job_id if to_uuid(job_id) == text.lower() else None
