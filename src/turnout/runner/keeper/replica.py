"""What the keeper knows of a gang and of each of its members."""

import contextlib
import json
import os
import re
from typing import Any

from .cgroups import Slot
from .logs import Log, Outlets
from .processes import Exit
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
        self.start = 0
        """The process's start time, which with the pid names it for good."""
        self.at = 0
        self.adopted = False
        """An earlier keeper started it: it is not our child, and `pidfd` tells when it is gone."""
        self.pidfd = -1
        self.log: Log | None = None
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
        return {"started": [self.gang.attempt, self.name, self.pid, self.start, self.at, self.slot_number]}


class Gang:
    """`lines` is all that the journal needs to say of it, and all that the service is told when it comes back."""

    def __init__(self, attempt: str, claim: Line, attempts: str) -> None:
        self.attempt = attempt
        self.limit: float | None = claim["limit"]
        self.grace: float = claim["grace"]
        self.log_bytes: int = claim["log_bytes"]
        self.lines: list[Line] = [{"claim": claim}]
        self.boot = ""
        self.replicas: dict[str, Replica] = {}
        for name, sandboxed in claim["replicas"].items():
            self.replicas[name] = Replica(self, name, f"{attempts}/{attempt}_{name}", sandboxed)

    @property
    def ended(self) -> bool:
        return all(replica.ended for replica in self.replicas.values())


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


def why_not_run(directory: str) -> tuple[str, int | None, str]:
    """Cause, code and message of a sandbox that never ran its program: bubblewrap wrote them to stderr."""
    last = ""
    with contextlib.suppress(OSError), open(directory + "/stderr", "rb") as file:
        file.seek(-min(4096, os.fstat(file.fileno()).st_size), os.SEEK_END)
        said = [
            text for text in file.read().decode(errors="replace").splitlines() if text.startswith("bwrap: ")
        ]
        last = said[-1].removeprefix("bwrap: ") if said else ""
    failed = re.fullmatch(r"execvp (.*): ([^:]*)", last)
    if failed is None:
        return STAGING, None, f"the sandbox could not be made: {last or 'bubblewrap did not say why'}"
    if failed[2] == os.strerror(2):
        return NOT_FOUND, 127, f"{failed[1]}: no such program, or its interpreter is missing"
    return NOT_FOUND, 126, f"{failed[1]}: cannot be run: {failed[2]}"
