"""Replicas of an earlier supervisor that have no claim, because lines of the journal were damaged or lost.

The remaining lines and the markers of processes identify them. Other services on this machine have processes with
markers too; those that belong here have a directory here.
"""

import os
import re

from ..gang import Gang
from ..procfs import has_file_open_in
from ..replicas import users
from ..replicas.spares import BOX
from ..supervisor import Supervisor
from .journal import Line

Strays = dict[str, list[Line]]
"""Journal lines by attempt, of attempts that have no claim."""

DAMAGED = "the supervisor's record of it was damaged"

_ATTEMPT = re.compile(r"[0-9]{1,19}\.[0-9]{1,9}")
_ATTEMPT_IN_LINE = re.compile(rb"(?<![0-9.])[0-9]{1,19}\.[0-9]{1,9}(?![0-9.])")
_OTHER_LINE = re.compile(rb'\{"(?:claim|ended|again|stop|tomb|forgotten|trimmed|pump|boot)":')
_NAME = re.compile(r"[A-Za-z0-9_-]+-[0-9]+")
_GRACE, _LOG_BYTES = 10.0, 1 << 30


def attempt_of(line: Line) -> str:
    """The attempt of a line that needs a claim before it; empty for other lines."""
    match line:
        case (
            {"starting": [str(attempt), *_]}
            | {"started": [str(attempt), *_]}
            | {"ended": [str(attempt), *_]}
            | {"again": [str(attempt), *_]}
            | {"stop": [str(attempt), *_]}
            | {"trimmed": [str(attempt), *_]}
            | {"pump": [str(attempt), *_]}
        ):
            return attempt if _ATTEMPT.fullmatch(attempt) else ""
    return ""


def any_directory(attempts: str) -> bool:
    """Whether there may be replicas: every replica that was started has a directory."""
    return any(not name.startswith(".") for name in os.listdir(attempts))


def damage_may_hide_start(bad: list[bytes], attempt: str) -> bool:
    """Whether a damaged line may have recorded a start of the attempt: it names the attempt, or it names none and its
    kind is unknown.
    """
    for raw in bad:
        named = _ATTEMPT_IN_LINE.findall(raw)
        if attempt.encode() in named or not (named or _OTHER_LINE.match(raw)):
            return True
    return False


def find(supervisor: Supervisor, strays: Strays, marked: dict[str, list[int]]) -> dict[str, list[str]]:
    """Attempts without a claim, with the names of their known replicas."""
    found: dict[str, set[str]] = {attempt: set(_named(lines)) for attempt, lines in strays.items()}
    for key, pids in marked.items():
        attempt, _, name = key.partition("/")
        if not _ATTEMPT.fullmatch(attempt) or not _NAME.fullmatch(name):
            continue
        directory = f"{supervisor.attempts}/{attempt}_{name}"
        if attempt not in supervisor.gangs and (
            os.path.isdir(directory) or has_file_open_in(pids[0], directory)
        ):
            found.setdefault(attempt, set()).add(name)
    for raw in supervisor.journal.bad:
        for attempt in _ATTEMPT_IN_LINE.findall(raw):
            if attempt.decode() not in supervisor.gangs:
                found.setdefault(attempt.decode(), set())
    for entry in os.listdir(supervisor.attempts) if found else ():
        attempt, _, name = entry.partition("_")
        if attempt in found and _NAME.fullmatch(name):
            found[attempt].add(name)
    return {attempt: sorted(names) for attempt, names in found.items() if names}


def claim(supervisor: Supervisor, attempt: str, names: list[str]) -> Gang:
    """Makes and journals a claim for what is known of a gang."""
    sandboxed = {name: os.path.isdir(f"{supervisor.attempts}/{attempt}_{name}/{BOX}") for name in names}
    line = {
        "a": attempt,
        "boot": supervisor.boot,
        "note": {},
        "limit": None,
        "grace": _GRACE,
        "log_bytes": _LOG_BYTES,
        "replicas": sandboxed,
        "partial": True,
    }
    if user := _user_of(f"{supervisor.attempts}/{attempt}_{names[0]}"):
        line["user"] = user
    gang = supervisor.gangs[attempt] = Gang(attempt, line, supervisor.attempts)
    supervisor.journal.append(gang.lines[0])
    return gang


def _user_of(directory: str) -> int:
    """The user of a replica: its directory belongs to that user's group."""
    try:
        group = os.stat(directory, follow_symlinks=False).st_gid
    except OSError:
        return users.OWN
    return group if group in users.uids() else users.OWN


def _named(lines: list[Line]) -> list[str]:
    named = [names for line in lines for _, [_, names, *_] in [next(iter(line.items()))]]
    flat = [name for names in named for name in (names if isinstance(names, list) else [names])]
    return [name for name in flat if isinstance(name, str) and _NAME.fullmatch(name)]
