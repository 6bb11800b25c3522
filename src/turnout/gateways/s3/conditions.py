"""What a request says about the object that it means: ranges, and If-Match and its kin."""

import re

from turnout.doors.s3 import times
from turnout.doors.s3.errors import S3Error
from turnout.doors.s3.sign import Asked
from turnout.storage.objects import Expect, Info

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


def check(asked: Asked, info: Info, prefix: str = "") -> None:
    """Raises PreconditionFailed, or NotModified where that is the answer.

    `prefix`: of the headers that speak of a copy's source.
    """
    seconds = info.modified // 1_000_000_000
    match = asked.header(prefix + "if-match")
    since = times.from_http(asked.header(prefix + "if-unmodified-since"))
    if not _matches(match, info) if match else since is not None and seconds > since:
        raise S3Error("PreconditionFailed", "The object is not the one that you asked about.")
    none = asked.header(prefix + "if-none-match")
    since = times.from_http(asked.header(prefix + "if-modified-since"))
    if _matches(none, info) if none else since is not None and seconds <= since:
        raise S3Error("PreconditionFailed" if prefix else "NotModified", "The object is as you know it.")


def expected(asked: Asked) -> Expect:
    """For writes: only `If-None-Match: *` is a thing there."""
    if asked.header("if-match"):
        raise S3Error("NotImplemented", "If-Match is not supported for writes.")
    none = asked.header("if-none-match").strip()
    if none and none != "*":
        raise S3Error("NotImplemented", "If-None-Match must be * for writes.")
    return "absent" if none else None


def span(text: str, size: int) -> tuple[int, int] | None:
    """First byte and the one after the last; None for all, which is also the answer to several ranges or nonsense."""
    match = _RANGE.fullmatch(text.strip())
    if match is None or match[0] == "bytes=-":
        return None
    first, last = match[1], match[2]
    if first and last and int(first) > int(last):
        return None
    if not first:
        begin, end = max(0, size - int(last)), size
    else:
        begin, end = int(first), min(size, int(last) + 1) if last else size
    if begin >= end:
        raise S3Error("InvalidRange", f"The range is not within the {size} bytes of the object.")
    return begin, end


def _matches(header: str, info: Info) -> bool:
    tags = [one.strip().removeprefix("W/").strip('"') for one in header.split(",")]
    return "*" in tags or info.etag in tags
