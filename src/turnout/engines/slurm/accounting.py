"""What sacct says, on clusters that have an accounting database: ended jobs that squeue has forgotten."""

from turnout.engines import Unreachable
from turnout.engines.slurm.commands import Commands
from turnout.engines.slurm.states import Row, accounted

_FORMAT = "--format=JobIDRaw,JobName%250,State%40,NodeList%250,Comment%1024"
_SINCE = "--starttime=now-30days"
_DISABLED = "accounting storage is disabled"


class Accounting:
    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._there = True

    async def job(self, number: str) -> Row | None:
        """Only if it is ours."""
        found = await self._ask(f"--jobs={number}")
        return next((row for row in found if row.job == number and row.is_ours), None)

    async def named(self, name: str) -> list[Row]:
        return [row for row in await self._ask(f"--name={name}") if row.name == name]

    async def _ask(self, which: str) -> list[Row]:
        """Nothing if there is no accounting, or it does not answer: squeue has, and it is the one that counts."""
        if not self._there:
            return []
        try:
            answer = await self._commands.run(
                "sacct", "--noheader", "--allocations", "--parsable2", _SINCE, _FORMAT, which
            )
        except Unreachable:
            return []
        if not answer.ok:
            self._there = _DISABLED not in answer.errors
            return []
        return accounted(answer.output)
