"""What the keeper knows of a gang and of each of its members."""

import contextlib
import json
import os
import re
from typing import Any

from .cgroups import Slot
from .logs import Log, Outlets
from .processes import Exit
from .sealing import SealedLog
from .spares import BOX

Line = dict[str, Any]

EXIT, STOPPED, TIME_LIMIT, OUT_OF_MEMORY = "exit", "stopped", "time limit", "out of memory"
NOT_FOUND, STAGING, LOST = "not found", "staging", "lost"
"""The values of `turnout.job.Cause`."""


class Replica:
    def __init__(self, gang: "Gang", name: str, directory: str, sandboxed: bool) -> None:
        self.gang = gang
        self.name = name
        self.key = f"{gang.attempt}/{name}"
        self.directory = directory
        self.sandboxed = sandboxed
        self.pid = 0
        self.plan: dict[str, Any] | None = None
        """Kept only where shells may be opened, and not by a keeper that took over from another."""
        self.dirs: tuple[str, ...] = ()
        """Directories that were made for it besides what every one has; as with `plan`."""
        self.start = 0
        """The process's start time, which with the pid names it for good."""
        self.at = 0
        self.since = 0
        """When it started for the first time: its time limit counts from there."""
        self.restarts = 0
        """How often it has been started again."""
        self.boot = ""
        """Of a recovered one: the boot of the machine in which it was to be started."""
        self.adopted = False
        """An earlier keeper started it: it is not our child, and `pidfd` tells when it is gone."""
        self.pidfd = -1
        self.log: Log | SealedLog | None = None
        self.pump: tuple[int, int] = (0, 0)
        """Process id and start time of what seals its log, if an earlier keeper started that."""
        self.outlets: Outlets | None = None
        self.watch = -1
        self.trimmed = False
        self.slot: Slot | None = None
        self.slot_number = -1
        self.cause = ""
        """Why we are ending it, if we are."""
        self.kill_at = 0
        self.exit: Exit | None = None
        """How its main process ended; what it left behind may still be there."""
        self.ended = False

    @property
    def started_line(self) -> Line:
        line = [self.gang.attempt, self.name, self.pid, self.start, self.at, self.slot_number]
        return {"started": line + self.which}

    @property
    def which(self) -> list[int]:
        """What its lines end with if this is not its first start."""
        return [self.restarts] if self.restarts else []


class Gang:
    """`lines` is all that the journal needs to say of it, and all that the service is told when it comes back."""

    def __init__(self, attempt: str, claim: Line, attempts: str) -> None:
        self.attempt = attempt
        self.limit: float | None = claim["limit"]
        self.grace: float = claim["grace"]
        self.log_bytes: int = claim["log_bytes"]
        self.sealed: bool = claim.get("sealed", False)
        """Nothing readable of it may be on disk: not here, and not in the journal."""
        self.lines: list[Line] = [{"claim": claim}]
        self.replicas: dict[str, Replica] = {}
        for name, sandboxed in claim["replicas"].items():
            self.replicas[name] = Replica(self, name, f"{attempts}/{attempt}_{name}", sandboxed)

    def kept(self, line: Line) -> Line:
        """As it goes into the journal: messages quote programs."""
        match line:
            case {"ended": [attempt, name, at, cause, code, number, _, *rest]} if self.sealed:
                return {"ended": [attempt, name, at, cause, code, number, "", *rest]}
        return line

    @property
    def ended(self) -> bool:
        return all(replica.ended for replica in self.replicas.values())

    def again(self, name: str, restarts: int) -> Replica:
        """In place of one that has ended: whoever still holds that one finds that there is nothing left to do."""
        old = self.replicas[name]
        new = self.replicas[name] = Replica(self, name, old.directory, old.sandboxed)
        new.restarts, new.since, new.trimmed = restarts, old.since, old.trimmed
        return new

    def not_again(self, replica: Replica) -> None:
        """Take it back: this start never was."""
        self.lines.remove(again_line(replica))
        self.again(replica.name, replica.restarts - 1).ended = True


def again_line(replica: Replica) -> Line:
    return {"again": [replica.gang.attempt, replica.name, replica.restarts]}


class Status:
    """What bubblewrap wrote into the status file: the id of the sandbox's first process, and the exit code."""

    def __init__(self, directory: str) -> None:
        self.inner: int | None = None
        self.code: int | None = None
        self.at = 0
        with contextlib.suppress(OSError, ValueError), open(f"{directory}/{BOX}/status") as file:
            self.at = os.fstat(file.fileno()).st_mtime_ns
            for line in file:
                fields = json.loads(line)
                self.inner = fields.get("child-pid", self.inner)
                self.code = fields.get("exit-code", self.code)

    @property
    def exit(self) -> Exit | None:
        """None: the program never ran, or has not ended."""
        return None if self.code is None else from_shell(self.code)


def from_shell(code: int) -> Exit:
    """Bubblewrap tells of signals as a shell does."""
    return Exit(None, code - 128) if 128 < code < 160 else Exit(code, None)


def why_not_run(replica: Replica) -> tuple[str, int | None, str]:
    """Cause, code and message of a sandbox that never ran its program: bubblewrap wrote them to stderr."""
    said = [text for text in _last_words(replica).splitlines() if text.startswith("bwrap: ")]
    last = said[-1].removeprefix("bwrap: ") if said else ""
    failed = re.fullmatch(r"execvp (.*): ([^:]*)", last)
    if failed is None:
        return STAGING, None, f"the sandbox could not be made: {last or 'bubblewrap did not say why'}"
    if failed[2] == os.strerror(2):
        return NOT_FOUND, 127, f"{failed[1]}: no such program, or its interpreter is missing"
    return NOT_FOUND, 126, f"{failed[1]}: cannot be run: {failed[2]}"


def _last_words(replica: Replica) -> str:
    if isinstance(replica.log, SealedLog):
        return replica.log.last_words()
    with contextlib.suppress(OSError), open(replica.directory + "/stderr", "rb") as file:
        file.seek(-min(4096, os.fstat(file.fileno()).st_size), os.SEEK_END)
        return file.read().decode(errors="replace")
    return ""
