"""A cluster that Slurm runs: each gang is one Slurm job, found by its name."""

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

from turnout import pools
from turnout.engines import Unreachable
from turnout.engines.remote import CheckResult, ClusterJob, ClusterNode, Gang, Phase, RunnerCall
from turnout.engines.slurm import nodes, shared_runner
from turnout.engines.slurm.accounting import Accounting
from turnout.engines.slurm.check import checks
from turnout.engines.slurm.commands import SECONDS, Answer, Commands
from turnout.engines.slurm.layout import Layout, layouts
from turnout.engines.slurm.partitions import Partitions
from turnout.engines.slurm.refusals import does_not_fit, is_unknown_job, refusal
from turnout.engines.slurm.script import sbatch, script
from turnout.engines.slurm.settings import SlurmSettings
from turnout.engines.slurm.states import FORMAT, NAMES, Row, cluster_job, comment_on, printed, rows
from turnout.job import Launch, ReplicaName

_log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 15.0
"""Seconds between two lists: the first after something was submitted or cancelled, then twice as long each time."""
_REMEMBERED = 10_000
_KEEP_WORDS = 7 * 86400
_LONGEST_WORDS = 4000
_ROLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class SlurmCluster:
    kind = "slurm"

    def __init__(
        self, name: str, settings: SlurmSettings, directory: Path, command_seconds: float = SECONDS
    ) -> None:
        """`directory`: where it may keep files."""
        self.name = name
        self._settings = settings
        self._directory = directory
        self._commands = Commands(settings, command_seconds)
        self._partitions = Partitions(self._commands, settings)
        self._accounting = Accounting(self._commands)
        self._tried: dict[str, None] = {}
        """Names of gangs whose submission was tried before."""
        self._listed: frozenset[str] | None = None
        """The names in the first list that Slurm gave to this process."""
        self._pause = FIRST_PAUSE
        self._changed = asyncio.Event()

    async def open(self) -> None:
        if self._words:
            await pools.disk.run(pools.OWN, self._prepare_words)

    async def close(self) -> None:
        """The commands end with the tasks that call them."""

    def refuses(self, launch: Launch) -> str:
        for role in launch.spec.roles:
            if not _ROLE.fullmatch(role.name):
                return f"{role.name!r} cannot be the name of a role on cluster {self.name}"
        return ""

    # Submit and cancel.

    async def submit(self, gang: Gang) -> str:
        if self._may_be_there(gang.name) and (found := await self._find(gang.name)):
            return found
        self._remember(gang.name)
        archive = await self._place_archive(gang.runner)
        command, text = await self._job(gang, archive)
        try:
            answer = await self._commands.run(*command, stdin=text)
        except Unreachable:
            if found := await self._find(gang.name):
                return found
            raise
        self._expect_change()
        if handle := _handle(answer):
            return handle
        error = refusal(answer)
        if isinstance(error, Unreachable) and (found := await self._find(gang.name)):
            return found
        raise error

    def _may_be_there(self, name: str) -> bool:
        """False: this process did not submit it, and an earlier one had not when Slurm first listed our jobs."""
        return name in self._tried or self._listed is None or name in self._listed

    def _remember(self, name: str) -> None:
        self._tried[name] = None
        while len(self._tried) > _REMEMBERED:
            del self._tried[next(iter(self._tried))]

    async def _find(self, name: str) -> str:
        """The handle of the job of this name, or nothing. A job that has not ended comes first."""
        answer = await self._commands.run(
            "squeue", "--noheader", "--me", "--states=all", f"--name={name}", f"--format={FORMAT}"
        )
        if not answer.ok:
            raise answer.unreachable()
        found = [row for row in rows(answer.output) if row.name == name]
        if not found and name in self._tried:
            found = await self._accounting.named(name)
        found.sort(key=lambda row: (cluster_job(row).phase is Phase.ENDED, -int(row.job)))
        return found[0].job if found else ""

    async def _job(self, gang: Gang, archive: str) -> tuple[list[str], str]:
        """The command and the script. If the roles can share an allocation in several ways, Slurm says which fits."""
        longest = await self._partitions.longest_minutes()
        choices = await pools.disk.run(
            pools.OWN, layouts, gang.launch.spec.roles
        )  # thousands take their time
        chosen = choices[0]
        if len(choices) > 1:
            for choice in choices:
                command, text = self._written(gang, choice, archive, longest)
                answer = await self._commands.run(*command, "--test-only", stdin=text)
                if not does_not_fit(answer):
                    chosen = choice
                    break
        return self._written(gang, chosen, archive, longest)

    def _written(
        self, gang: Gang, layout: Layout, archive: str, longest: float | None
    ) -> tuple[list[str], str]:
        command = sbatch(gang, self._settings, layout, longest)
        return command, script(gang, self._settings, layout, self._words, archive)

    async def _place_archive(self, runner: RunnerCall) -> str:
        """Its path in the shared directory; empty: nodes fetch it, as they do if the path does not have it."""
        directory = self._settings.runner_directory
        if not directory:
            return ""
        path = Path(directory) / f"runner-{runner.digest}.pyz"
        try:
            await pools.disk.run(pools.OWN, shared_runner.place, Path(runner.archive), path)
        except OSError as error:
            _log.warning("%s cannot be written (%s): nodes fetch the runner instead", path, error.strerror)
            return ""
        return str(path)

    async def cancel(self, handle: str) -> None:
        answer = await self._commands.run("scancel", handle)
        self._expect_change()
        if not answer.ok and not is_unknown_job(answer):
            raise answer.unreachable()

    async def forget(self, handle: str) -> None:
        """Slurm forgets its jobs by itself."""

    def is_placed(self, handle: str) -> bool:
        return True  # a job starts when it has its whole allocation

    # What Slurm says.

    async def watch(self) -> AsyncGenerator[list[ClusterJob]]:
        while True:
            yield await self._list()
            await self._next_list()

    async def _list(self) -> list[ClusterJob]:
        answer = await self._commands.run(
            "squeue", "--noheader", "--me", "--states=all", f"--format={FORMAT}"
        )
        if not answer.ok:
            raise answer.unreachable()
        found = [row for row in rows(answer.output) if row.is_ours]
        if self._listed is None:
            self._listed = frozenset(row.name for row in found)
        return [await self._described(row) for row in found]

    async def _described(self, row: Row) -> ClusterJob:
        return cluster_job(row, await self._partitions.jobs_before(row))

    async def _next_list(self) -> None:
        deadline = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        while (left := deadline - time.monotonic()) > 0:
            self._changed.clear()
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                return
            deadline = min(deadline, time.monotonic() + FIRST_PAUSE)

    def _expect_change(self) -> None:
        self._pause = FIRST_PAUSE
        self._changed.set()

    async def look(self, handle: str) -> ClusterJob | None:
        row = await self._row(handle)
        return await self._described(row) if row else None

    async def _row(self, handle: str) -> Row | None:
        answer = await self._commands.run(
            "squeue", "--noheader", "--states=all", f"--jobs={handle}", f"--format={FORMAT}"
        )
        if not answer.ok and not is_unknown_job(answer):
            raise answer.unreachable()
        # After its last number, Slurm counts from the beginning: it may be somebody else's job by now.
        row = next((row for row in rows(answer.output) if row.is_ours), None)
        if row is None or row.state == "CANCELLED":
            known = await self._accounting.job(handle)
            return known._replace(waited=row.waited) if known and row else known or row
        return row

    async def last_words(self, handle: str, replica: ReplicaName) -> str:
        if self._words:
            found = await pools.disk.run(pools.OWN, self._read_words, handle, replica)
            if found:
                return found
        row = await self._row(handle)
        return comment_on(row.comment, str(replica), replica.role) if row else ""

    @property
    def _words(self) -> str:
        """What the paths of files with the runners' output begin with; empty: the nodes cannot write them."""
        return f"{self._directory}/words/" if self._settings.is_shared(str(self._directory)) else ""

    def _prepare_words(self) -> None:
        directory = Path(self._words)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        oldest = time.time() - _KEEP_WORDS
        for path in directory.iterdir():
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < oldest:
                    path.unlink()

    def _read_words(self, handle: str, replica: ReplicaName) -> str:
        texts = [_read(f"{self._words}{handle}-batch")]
        texts.insert(0, printed(_read(f"{self._words}{handle}-{replica.role}"), replica.index))
        return "\n".join(text for text in texts if text)[-_LONGEST_WORDS:]

    async def nodes(self) -> list[ClusterNode]:
        answer = await self._commands.run(*nodes.COMMAND)
        if not answer.ok:
            raise answer.unreachable()
        return nodes.nodes(answer.output, self._settings.partition)

    def check(self, runner: RunnerCall) -> AsyncIterator[CheckResult]:
        return checks(self._commands, self._settings, runner, f"{NAMES}check")


def _handle(answer: Answer) -> str:
    """`--parsable` prints the number, and `;cluster` after it where there are several."""
    lines = answer.output.split() if answer.ok else []
    number = lines[-1].partition(";")[0] if lines else ""
    return number if number.isdigit() else ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""
