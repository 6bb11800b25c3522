"""Durations and times of protobuf's JSON mapping, as whole nanoseconds."""

import re
from datetime import UTC, datetime
from functools import lru_cache

SECOND = 1_000_000_000

_DURATION = re.compile(r"(-?)([0-9]{1,12})(?:\.([0-9]{1,9}))?s")
_LONGEST = 315_576_000_000
"""Seconds: ten thousand years, the maximum of a Duration."""
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?(?:([Zz])|([+-][0-9]{2}:[0-9]{2}))"
)


def parse_duration(text: str) -> int | None:
    """`3.5s`; None for anything else."""
    match = _DURATION.fullmatch(text)
    if match is None or int(match[2]) > _LONGEST:
        return None
    nanoseconds = int(match[2]) * SECOND + _fraction(match[3])
    return -nanoseconds if match[1] else nanoseconds


def spell_duration(nanoseconds: int) -> str:
    """With zero, three, six or nine digits after the point, as protobuf does."""
    seconds, rest = divmod(abs(nanoseconds), SECOND)
    digits = f"{rest:09d}"
    while rest and digits.endswith("000"):
        digits = digits[:-3]
    return f"{'-' if nanoseconds < 0 else ''}{seconds}{'.' + digits if rest else ''}s"


def parse_time(text: str) -> int | None:
    """RFC 3339 with up to nine digits and any offset; None for anything else."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    day, clock, fraction, zulu, offset = match.groups()
    try:
        at = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zulu else offset}")
        return int((at - _EPOCH).total_seconds()) * SECOND + _fraction(fraction)
    except ValueError:
        return None


def spell_time(at: int) -> str:
    """In UTC with `Z`, without trailing zeros in the fraction."""
    seconds, rest = divmod(at, SECOND)
    return f"{_clock(seconds)}{f'.{rest:09d}'.rstrip('0') if rest else ''}Z"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=64)
def _clock(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()


def _fraction(digits: str | None) -> int:
    return int(digits.ljust(9, "0")) if digits else 0
