"""Conditional requests (If-Match and the other headers) and ranges."""

import re

from turnout.access.sigv4 import HttpRequest
from turnout.gateways.s3 import times
from turnout.gateways.s3.errors import S3Error
from turnout.storage.embedded.objects import Expect, Info

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


def check(request: HttpRequest, info: Info, prefix: str = "") -> None:
    """Raises PreconditionFailed or NotModified.

    `prefix`: the prefix of the header names that are conditions on the source of a copy.
    """
    seconds = info.modified // 1_000_000_000
    match = request.header(prefix + "if-match")
    since = times.from_http(request.header(prefix + "if-unmodified-since"))
    if not _matches(match, info) if match else since is not None and seconds > since:
        raise S3Error("PreconditionFailed", "The object does not meet the condition.")
    none = request.header(prefix + "if-none-match")
    since = times.from_http(request.header(prefix + "if-modified-since"))
    if _matches(none, info) if none else since is not None and seconds <= since:
        raise S3Error("PreconditionFailed" if prefix else "NotModified", "The object has not changed.")


def expected(request: HttpRequest) -> Expect:
    """The condition of a write. Only `If-None-Match: *` is supported."""
    if request.header("if-match"):
        raise S3Error("NotImplemented", "If-Match is not supported for writes.")
    none = request.header("if-none-match").strip()
    if none and none != "*":
        raise S3Error("NotImplemented", "If-None-Match must be * for writes.")
    return "absent" if none else None


def refuse_for_delete(request: HttpRequest) -> None:
    for name in ("if-match", "x-amz-if-match-last-modified-time", "x-amz-if-match-size"):
        if request.header(name):
            raise S3Error("NotImplemented", f"{name} is not supported for deletes.")


def span(text: str, size: int) -> tuple[int, int] | None:
    """Start and end (exclusive). None for the whole object, also for several or malformed ranges."""
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
    tags = [tag.strip().removeprefix("W/").strip('"') for tag in header.split(",")]
    return "*" in tags or info.etag in tags
