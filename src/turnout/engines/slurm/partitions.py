"""What the partition of our jobs allows, and who waits in it. Asked rarely: each question slows Slurm for all users."""

import re
import time

from turnout.engines import Unreachable
from turnout.engines.slurm.commands import Commands
from turnout.engines.slurm.settings import SlurmSettings
from turnout.engines.slurm.states import FORMAT, IN_TURN, SEPARATOR, Row, jobs_before, rows

_LIMIT_SECONDS = 600
_QUEUE_SECONDS = (1.0, 60.0)
_QUEUE_SHARE = 20
"""A list of all pending jobs is kept for so many times as long as Slurm took to make it, within these limits."""


class Partitions:
    def __init__(self, commands: Commands, settings: SlurmSettings) -> None:
        self._commands = commands
        self._partition = settings.partition
        self._longest: float | None = None
        self._longest_until = 0.0
        self._pending: dict[str, tuple[float, list[Row] | None]] = {}

    async def longest_minutes(self) -> float | None:
        """The largest time limit that a job may have; None: there is none, or it is not known."""
        if time.monotonic() >= self._longest_until:
            which = [f"--partition={self._partition}"] if self._partition else []
            try:
                answer = await self._commands.run("sinfo", "--noheader", f"--format=%P{SEPARATOR}%l", *which)
            except Unreachable:
                return self._longest
            if answer.ok:
                self._longest = longest_limit(answer.output, bool(self._partition))
                self._longest_until = time.monotonic() + _LIMIT_SECONDS
        return self._longest

    async def jobs_before(self, row: Row) -> int | None:
        """How many jobs Slurm would rather start; None: it does not matter, or is not known."""
        if row.state != "PENDING" or row.reason not in IN_TURN:
            return None
        began = time.monotonic()
        until, pending = self._pending.get(row.partition, (0.0, None))
        if began >= until:
            pending = await self._ask(row.partition)
            now = time.monotonic()
            least, most = _QUEUE_SECONDS
            self._pending[row.partition] = (
                now + min(most, max(least, _QUEUE_SHARE * (now - began))),
                pending,
            )
        return None if pending is None else jobs_before(row, pending)

    async def _ask(self, partition: str) -> list[Row] | None:
        try:
            answer = await self._commands.run(
                "squeue", "--noheader", "--states=PENDING", f"--partition={partition}", f"--format={FORMAT}"
            )
        except Unreachable:
            return None
        return rows(answer.output) if answer.ok else None


def longest_limit(output: str, named: bool) -> float | None:
    """The longest limit that sinfo prints: for our partition, or without one for the default, which has a star."""
    limits: list[float | None] = []
    for line in output.splitlines():
        name, _, limit = line.partition(SEPARATOR)
        if named or name.endswith("*"):
            limits.append(minutes(limit.strip()))
    known = [limit for limit in limits if limit is not None]
    return max(known) if known and len(known) == len(limits) else None


_TIME = re.compile(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)")


def minutes(limit: str) -> float | None:
    """`2:00` (minutes and seconds), `1:00:00`, `7-00:00:00`; None for `infinite` and `n/a`."""
    found = _TIME.fullmatch(limit)
    if not found:
        return None
    days, hours, mins, seconds = (int(part or 0) for part in found.groups())
    return days * 1440 + hours * 60 + mins + seconds / 60
