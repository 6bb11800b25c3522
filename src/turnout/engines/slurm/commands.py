"""Runs Slurm's commands: here, or where the prefix of the settings leads. Each has a time limit."""

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import Iterator
from typing import NamedTuple

from turnout.engines import Unreachable
from turnout.engines.slurm.settings import SlurmSettings

SECONDS = 30.0
_AT_A_TIME = 8
_LONGEST_MESSAGE = 500

# Variables that would change what the commands list, or that are not for jobs.
_NOT_PASSED = ("SQUEUE_", "SINFO_", "SACCT_", "SLURM_CLUSTERS", "TURNOUT_")


class Answer(NamedTuple):
    command: str
    """Its name: `squeue`."""
    code: int
    output: str
    errors: str

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def message(self) -> str:
        """What it said on stderr, in one line."""
        lines = [line.strip() for line in self.errors.splitlines() if line.strip()]
        return "; ".join(lines)[:_LONGEST_MESSAGE] or f"exit code {self.code}"

    def unreachable(self) -> Unreachable:
        return Unreachable(f"{self.command} failed: {self.message}")


class Commands:
    def __init__(self, settings: SlurmSettings, seconds: float = SECONDS) -> None:
        self._prefix = settings.command
        environment = settings.environment.items()
        self._environment = {name: value for name, value in environment if not name.startswith(_NOT_PASSED)}
        self._seconds = seconds
        self._turns = asyncio.Semaphore(_AT_A_TIME)

    async def run(self, *command: str, stdin: str = "") -> Answer:
        """Raises Unreachable if the command cannot be run or does not end in time. Any exit code is an answer."""
        async with self._turns:
            with _readable(stdin) as source:
                process = await self._start(command, source)
            try:
                async with asyncio.timeout(self._seconds):
                    output, errors = await process.communicate()
            except TimeoutError:
                raise Unreachable(f"{command[0]} did not answer within {self._seconds:g} s") from None
            finally:
                if process.returncode is None:
                    await _end(process)
        code = process.returncode
        assert code is not None
        return Answer(command[0], code, output.decode(errors="replace"), errors.decode(errors="replace"))

    async def _start(self, command: tuple[str, ...], stdin: int) -> asyncio.subprocess.Process:
        # A shell at the other end takes the command apart again.
        argv = (*self._prefix, shlex.join(command)) if self._prefix else command
        try:
            return await asyncio.create_subprocess_exec(
                *argv,
                stdin=stdin,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environment,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise Unreachable(f"{argv[0]} cannot be run: {error.strerror}") from error


@contextlib.contextmanager
def _readable(text: str) -> Iterator[int]:
    """A file in memory. The loop breaks a pipe to a command that ends before it has read everything."""
    if not text:
        yield asyncio.subprocess.DEVNULL
        return
    descriptor = os.memfd_create("stdin")
    with open(descriptor, "wb") as file:
        file.write(text.encode())
        file.flush()
        file.seek(0)
        yield descriptor


async def _end(process: asyncio.subprocess.Process) -> None:
    """With its children, such as those of a prefix that is a shell."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # To the end of its output, too: only then does the loop close the pipes.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1):
            await process.communicate()
