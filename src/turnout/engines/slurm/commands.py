"""Runs Slurm's commands: on this machine, or through the prefix of the settings, such as ssh. Each has a time limit."""

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
from typing import BinaryIO, NamedTuple

from turnout.engines import Unreachable
from turnout.engines.slurm.settings import SlurmSettings

SECONDS = 30.0
_AT_A_TIME = 8
_LONGEST_MESSAGE = 500

# Variables that would change what the commands list, or that are not for jobs.
_NOT_PASSED = ("SQUEUE_", "SINFO_", "SACCT_", "SLURM_CLUSTERS", "TURNOUT_")


# Times as seconds since 1970: local ones jump.
_VARIABLES = {"squeue": {"SLURM_TIME_FORMAT": "%s"}}


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
            with _memory_file(stdin) as source, _memory_file() as output, _memory_file() as errors:
                process = self._start(command, source, output, errors)
                try:
                    async with asyncio.timeout(self._seconds):
                        await _ended(process)
                except TimeoutError:
                    raise Unreachable(f"{command[0]} did not answer within {self._seconds:g} s") from None
                finally:
                    if process.poll() is None:
                        await _kill(process)
                return Answer(command[0], process.returncode, _text(output), _text(errors))

    def _start(
        self, command: tuple[str, ...], stdin: BinaryIO, stdout: BinaryIO, stderr: BinaryIO
    ) -> subprocess.Popen[bytes]:
        # A shell at the other end takes the command apart again.
        argv = (*self._prefix, shlex.join(command)) if self._prefix else command
        try:
            # Not the event loop's way to start a process: it copies the memory tables of the service each time, which
            # takes longer than most of these commands, and everything else waits for it.
            return subprocess.Popen(
                argv,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=self._environment | _VARIABLES.get(command[0], {}),
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise Unreachable(f"{argv[0]} cannot be run: {error.strerror}") from error


def _memory_file(text: str = "") -> BinaryIO:
    """Unlike a pipe, nobody has to read it while the command runs, and no child of the command keeps it open."""
    file = open(os.memfd_create("slurm"), "w+b")  # noqa: SIM115 (the caller closes it)
    file.write(text.encode())
    file.flush()
    file.seek(0)
    return file


def _text(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


async def _ended(process: subprocess.Popen[bytes]) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    descriptor = os.pidfd_open(process.pid)
    try:
        loop.add_reader(descriptor, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    process.wait()


async def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills its children too, such as those of a prefix that is a shell."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1):
            await _ended(process)
