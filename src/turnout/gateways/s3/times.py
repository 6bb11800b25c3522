"""Times in S3's formats, from nanoseconds since 1970."""

import calendar
import email.utils
import time


def iso(at: int) -> str:
    seconds, rest = divmod(at, 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest // 1_000_000:03d}Z"


def http(at: int) -> str:
    return email.utils.formatdate(at // 1_000_000_000, usegmt=True)


def from_http(text: str) -> int | None:
    """In seconds; None if it is not a date."""
    parsed = email.utils.parsedate(text)
    if parsed is None:
        return None
    try:
        return calendar.timegm(parsed)
    except (ValueError, OverflowError):
        return None
