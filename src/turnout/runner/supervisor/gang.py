"""The state of a gang and of each of its replicas."""

import contextlib
import json
import os
import re
import time
from typing import Any

from .logs.marks import PlainLog, StreamPipes
from .logs.sealed_log import SealedLog
from .loop import Timer
from .network.spawner import Spawner
from .procfs import Exit, access_to
from .replicas.cgroups import Slot
from .replicas.spares import BOX
from .replicas.users import OWN, acting_as

Line = dict[str, Any]

EXIT, STOPPED, TIME_LIMIT, OUT_OF_MEMORY = "exit", "stopped", "time limit", "out of memory"
NOT_FOUND, STAGING, LOST = "not found", "staging", "lost"
"""The values of `turnout.job.Cause`."""


_STATUS_BYTES = 1 << 12


class Replica:
    """One start of a replica: a restart replaces the object."""

    def __init__(self, gang: "Gang", name: str, directory: str, sandboxed: bool) -> None:
        self.gang = gang
        self.name = name
        self.key = f"{gang.attempt}/{name}"
        self.directory = directory
        self.disk_limit = gang.disk_limits.get(name.rpartition("-")[0], 0)
        """The limit of its workspace and /tmp in bytes; 0: no limit."""
        self.sandboxed = sandboxed
        self.user = gang.user
        self.pid = 0
        self.program = ""
        """The first word of its command line; unknown of an adopted replica."""
        self.plan: dict[str, Any] | None = None
        """Kept only where shells may be opened. An adopted replica has none."""
        self.start_time = 0
        """Start time of the process in clock ticks. Together with the pid it identifies the process for good."""
        self.started_at = 0
        self.first_started_at = 0
        """Time of its first start. The time limit counts from then."""
        self.first_started_clock = 0.0
        """The same by the steady clock; 0 if the machine restarted since."""
        self.restarts = 0
        self.boot = ""
        """Id of the boot in which it is started."""
        self.adopted = False
        """An earlier supervisor started it. It is not a child of this one, and `pidfd` shows when it is gone."""
        self.pidfd = -1
        self.spawner: Spawner | None = None
        """The parent of its process, if that is not the supervisor. Then `pidfd` shows when the process has ended."""
        self.log: PlainLog | SealedLog | None = None
        self.encrypter: tuple[int, int] = (0, 0)
        """Process id and start time of its log encrypter, if an earlier supervisor started that."""
        self.pipes: StreamPipes | None = None
        self.watch = -1
        self.trimmed = False
        self.printed = True
        """False only if it is certain that it printed nothing."""
        self.status = -1
        """Descriptor of bubblewrap's status file. It stays readable if the directory is removed."""
        self.slot: Slot | None = None
        self.slot_number = -1
        self.timers: list[Timer] = []
        """For its time limit and its KILL. They are cancelled when it ends."""
        self.cause = ""
        """Why it is being stopped; empty if it is not."""
        self.cause_detail = ""
        """Message for users, where the cause alone is not enough."""
        self.kill_deadline = 0.0
        """When it gets KILL, by the steady clock; 0 if it is not being stopped."""
        self.exit: Exit | None = None
        """How its main process ended. Other processes of it may still run."""
        self.cleanup_failures = 0
        """How many attempts to kill its leftover processes failed."""
        self.ended = False
        self.starting = False
        """The journal says that its process is about to be created. From then on it may have run."""
        self.pending_file = False
        """Its process empties the file `spares.PENDING` before its exec, and the journal says so."""
        self.awaiting_start = False
        """It never ran, but others of its gang did, under an earlier supervisor. The service will ask for it again."""

    @property
    def starting_line(self) -> Line:
        line: Line = {"starting": [self.gang.attempt, self.name, *self.restart_suffix]}
        return line | {"pending": True} if self.pending_file else line

    @property
    def started_line(self) -> Line:
        line = [self.gang.attempt, self.name, self.pid, self.start_time, self.started_at, self.slot_number]
        return {"started": line + self.restart_suffix}

    @property
    def restart_suffix(self) -> list[int]:
        """Journal lines of a restart end with its number; those of a first start do not."""
        return [self.restarts] if self.restarts else []


class Gang:
    """`lines` is everything that is sent to a service that connects."""

    def __init__(self, attempt: str, claim: Line, attempts: str) -> None:
        self.attempt = attempt
        self.time_limit: float | None = claim["limit"]
        self.grace: float = claim["grace"]
        self.log_bytes: int = claim["log_bytes"]
        self.disk_limits: dict[str, int] = claim.get("disk", {})
        """Bytes by role."""
        self.partial: bool = claim.get("partial", False)
        """A supervisor made this claim, because it found only traces of the gang. There may have been more replicas."""
        self.sealed: bool = claim.get("sealed", False)
        """Its data is encrypted: neither its directories nor the journal may keep anything readable."""
        self.latest = 0
        """The latest time that was reported of it."""
        self.network: bool = claim.get("network", False)
        """It has a private network."""
        self.journals_starts: bool = claim.get("tells_starting", False)
        """Each process has a `starting` line in the journal. Older versions did not write it."""
        self.user: int = claim.get("user", OWN)
        """The user of its processes, see `users`."""
        self.lines: list[Line] = [{"claim": claim}]
        self.replicas: dict[str, Replica] = {}
        for name, sandboxed in claim["replicas"].items():
            self.replicas[name] = Replica(self, name, f"{attempts}/{attempt}_{name}", sandboxed)
            self.replicas[name].boot = claim.get("boot", "")

    def for_journal(self, line: Line) -> Line:
        """The line as the journal keeps it: messages quote the program's output, so those of a sealed gang are left
        out.
        """
        match line:
            case {"ended": [attempt, name, at, cause, code, number, _, *rest]} if self.sealed:
                return {"ended": [attempt, name, at, cause, code, number, "", *rest]}
        return line

    def journal_lines(self) -> list[Line]:
        """Everything that the journal has to keep of it."""
        starting = [r.starting_line for r in self.replicas.values() if r.starting and not r.ended]
        return [self.for_journal(line) for line in self.lines] + starting

    def timestamp(self, at: int = 0) -> int:
        """The wall clock, or `at`. It never goes back for one gang, even if the clock does."""
        self.latest = max(at or time.time_ns(), self.latest)
        return self.latest

    @property
    def ended(self) -> bool:
        return all(replica.ended for replica in self.replicas.values())

    def restart(self, name: str, restarts: int, boot: str) -> Replica:
        """Replaces a replica that has ended. Callbacks that still hold the old object find that it has ended."""
        old = self.replicas[name]
        new = self.replicas[name] = Replica(self, name, old.directory, old.sandboxed)
        new.restarts, new.first_started_at, new.trimmed, new.boot = (
            restarts,
            old.first_started_at,
            old.trimmed,
            boot,
        )
        new.first_started_clock = old.first_started_clock if old.boot == boot else 0.0
        return new

    def undo_restart(self, replica: Replica) -> None:
        """Undoes `restart`, because the process was never created."""
        wanted = restart_line(replica)["again"]
        self.lines = [line for line in self.lines if line.get("again") != wanted]
        self.restart(replica.name, replica.restarts - 1, replica.boot).ended = True


def make_claim(message: dict[str, Any], boot: str) -> Line:
    """The claim that is journaled for a launch."""
    claim: Line = {name: message[name] for name in ("a", "note", "limit", "grace", "log_bytes")}
    claim |= {"boot": boot, "tells_starting": True}
    claim |= {"replicas": {plan["name"]: "sandbox" in plan for plan in message["replicas"]}}
    claim |= {name: message[name] for name in ("allowance", "disk", "images", "user") if name in message}
    for name, shared_name in (("sealed", "seal"), ("network", "network")):
        if message["shared"].get(shared_name):
            claim[name] = True
    return claim


def restart_line(replica: Replica) -> Line:
    return {"again": [replica.gang.attempt, replica.name, replica.restarts], "in": replica.boot}


class SandboxStatus:
    """Content of bubblewrap's status file: the id of the sandbox's first process, and the exit code."""

    def __init__(self, fd: int) -> None:
        self.init_pid: int | None = None
        self.code: int | None = None
        self.podman = False
        """Podman runs the program, in a container below the first process."""
        self.at = 0
        with contextlib.suppress(OSError, ValueError):
            self.at = os.fstat(fd).st_mtime_ns
            for line in os.pread(fd, _STATUS_BYTES, 0).splitlines():
                fields = json.loads(line)
                self.init_pid = fields.get("child-pid", self.init_pid)
                self.code = fields.get("exit-code", self.code)
                self.podman = self.podman or bool(fields.get("podman"))

    @property
    def exit(self) -> Exit | None:
        """None if the program never ran or has not ended."""
        return None if self.code is None else exit_from_shell_code(self.code)


def open_status(replica: Replica, number: int) -> None:
    """Opens the status file of an adopted replica: by its path, or as the descriptor `number` of its process."""
    flags = os.O_RDONLY | os.O_CLOEXEC
    with contextlib.suppress(OSError), acting_as(replica.user):
        replica.status = os.open(f"{replica.directory}/{BOX}/status", flags)
        return
    with contextlib.suppress(OSError), access_to(replica.pid):
        replica.status = os.open(f"/proc/{replica.pid}/fd/{number}", flags)


def exit_from_shell_code(code: int) -> Exit:
    """Bubblewrap reports signals as a shell does."""
    return Exit(None, code - 128) if 128 < code < 160 else Exit(code, None)


def sandbox_failure(replica: Replica) -> tuple[str, int | None, str]:
    """Cause, code and message for a sandbox that never ran its program. Bubblewrap or podman wrote the reason to
    stderr.
    """
    errors = [
        text for text in _end_of_stderr(replica).splitlines() if text.startswith(("bwrap: ", "Error: "))
    ]
    if errors and errors[-1].startswith("Error: "):
        return STAGING, None, f"podman could not make the container: {errors[-1].removeprefix('Error: ')}"
    last = errors[-1].removeprefix("bwrap: ") if errors else ""
    failed = re.fullmatch(r"execvp (.*): ([^:]*)", last)
    if failed is None:
        return STAGING, None, f"the sandbox could not be made: {last or 'bubblewrap did not say why'}"
    if failed[2] == os.strerror(2):
        return NOT_FOUND, 127, f"{failed[1]}: no such program, or its interpreter is missing"
    return NOT_FOUND, 126, f"{failed[1]}: cannot be run: {failed[2]}"


def container_failure(replica: Replica) -> tuple[int, str] | None:
    """Exit code and message if the first process of a container could not run the program. It wrote that to stderr, and
    ended with code 1. None: the program ran.
    """
    lines = _end_of_stderr(replica).splitlines()
    failed = re.fullmatch(r"ERROR \(catatonit:\d+\): failed to exec pid1: (.*)", lines[-1]) if lines else None
    if failed is None:
        return None
    name = replica.program or "the program"
    if failed[1] == os.strerror(2):
        return 127, f"{name}: no such program, or its interpreter is missing"
    return 126, f"{name}: cannot be run: {failed[1]}"


def _end_of_stderr(replica: Replica) -> str:
    if isinstance(replica.log, SealedLog):
        return replica.log.end_of_stderr()
    with contextlib.suppress(OSError), open(replica.directory + "/stderr", "rb") as file:
        file.seek(-min(4096, os.fstat(file.fileno()).st_size), os.SEEK_END)
        return file.read().decode(errors="replace")
    return ""
