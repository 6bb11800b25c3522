"""Times in requests and answers."""

from datetime import UTC, datetime, timedelta, timezone

FORMS = "in milliseconds since 1970 or as RFC 3339 (2022-11-26T16:03:41+08:00)"

_MILLION = 1_000_000
_CHINA = timezone(timedelta(hours=8))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_DIGITS = 13
"""Milliseconds up to the year 2286, which fit into 63 bits as nanoseconds."""


def parse(text: str) -> int | None:
    """Nanoseconds since 1970. A time without a zone is China's. None if it is not a time, or out of range."""
    text = text.strip()
    if text.isdecimal() and text.isascii():
        return int(text) * _MILLION if len(text) <= _MOST_DIGITS else None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=_CHINA)
        since = moment - _EPOCH
    except (ValueError, OverflowError):
        return None
    at = (since.days * 86_400 + since.seconds) * 1_000 * _MILLION + since.microseconds * 1_000
    return at if 0 <= at < 10**_MOST_DIGITS * _MILLION else None


def iso(at: int) -> str:
    """`2022-11-26T16:03:41+08:00`"""
    return datetime.fromtimestamp(at // 1_000_000_000, _CHINA).isoformat()
