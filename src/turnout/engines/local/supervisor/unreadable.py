"""Lines from the supervisor that cannot be read: stored for people to look at, and traced to the job they belong to."""

import contextlib
import logging
import os
import re
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from turnout.job import Attempt, ReplicaName

_log = logging.getLogger(__name__)

_LARGEST_FILE = 1 << 20
_ATTEMPT = re.compile(r"[0-9]{1,19}\.[0-9]{1,9}")
_NAME = re.compile(r"[A-Za-z0-9_-]+-[0-9]+")


class Subject(NamedTuple):
    """What an unreadable line is about, as far as it can be made out."""

    kind: str
    attempt: Attempt
    replica: ReplicaName | None
    restarts: int


def set_aside(file: Path, line: bytes, error: Exception) -> None:
    """Appends the line to the file, unless that has reached its largest size."""
    _log.error(
        "a line from the supervisor cannot be read and is set aside in %s: %r: %.200r", file, error, line
    )
    with contextlib.suppress(OSError):
        fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if os.fstat(fd).st_size + len(line) <= _LARGEST_FILE:
                os.write(fd, line + b"\n")
        finally:
            os.close(fd)


def subject_of(line: bytes) -> Subject | None:
    """None: not even the attempt can be made out."""
    try:
        ((kind, value),) = msgspec.json.decode(line, type=dict[str, Any]).items()
    except (msgspec.DecodeError, ValueError):
        return None
    fields: list[Any] = []
    if isinstance(value, dict):
        fields = [cast("dict[str, Any]", value).get("a")]
    elif isinstance(value, list):
        fields = cast("list[Any]", value)
    if not fields or not _ATTEMPT.fullmatch(str(fields[0])):
        return None
    name = str(fields[1]) if len(fields) > 1 else ""
    replica = ReplicaName.parse(name) if _NAME.fullmatch(name) else None
    return Subject(kind, Attempt.parse(str(fields[0])), replica, _restarts(kind, fields))


def _restarts(kind: str, fields: list[Any]) -> int:
    last = fields[-1]
    complete = {"started": 7, "ended": 8}.get(kind)
    return last if len(fields) == complete and isinstance(last, int) else 0
