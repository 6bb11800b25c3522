import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.runner.node.fake_gateway import ATTEMPT, REPLICA, TOKEN, FakeGateway
from turnout.runner.archive import build

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


class RunnerProcess:
    """A runner that works for a fake gateway."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Path, gateway: FakeGateway) -> None:
        self.process = process
        self.gateway = gateway
        self._errors = errors

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def printed(self) -> str:
        return self._errors.read_text()

    def wait(self, seconds: float = 30) -> int:
        """Its exit code."""
        code = self.process.wait(seconds)
        assert not self.gateway.strange
        assert TOKEN not in self.printed
        assert "Traceback" not in self.printed
        return code

    def wait_for_end(self, seconds: float = 30) -> dict[str, Any]:
        """Waits until the program has ended, and returns how."""
        return self.gateway.wait_for(lambda: self.gateway.ended, seconds)[-1]

    def finish(self, seconds: float = 30) -> int:
        """Lets the runner leave after the end of its program. Returns its exit code."""
        self.wait_for_end(seconds)
        self.gateway.order("leave")
        return self.wait(seconds)


Start = Callable[..., RunnerProcess]


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    gateway = FakeGateway()
    yield gateway
    gateway.go_away()


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("archive"))[0]


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    directory = tmp_path / "scratch"
    directory.mkdir()
    return directory


@pytest.fixture
def start_runner(gateway: FakeGateway, archive: Path, scratch: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts a runner. Keyword arguments are variables of its environment."""
    running: list[RunnerProcess] = []

    def start(
        python: str = sys.executable,
        gateway: FakeGateway = gateway,
        options: tuple[str, ...] = (),
        **variables: str,
    ) -> RunnerProcess:
        env = {
            "PATH": SYSTEM_PATH,
            "TURNOUT_TOKEN": TOKEN,
            "TURNOUT_SCRATCH": str(scratch),
            "TURNOUT_ENGINE_ID": "4711",
            "TURNOUT_PATIENCE": "60",
            **variables,
        }
        errors = tmp_path / f"errors-{len(running)}"
        command = [python, *options, str(archive), gateway.endpoint, f"gpu/{ATTEMPT}/{REPLICA}"]
        with errors.open("wb") as file:
            process = subprocess.Popen(command, env=env, stderr=file, stdout=file, stdin=subprocess.DEVNULL)
        running.append(RunnerProcess(process, errors, gateway))
        return running[-1]

    yield start
    for runner in running:
        if runner.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(runner.pid, signal.SIGKILL)
            runner.process.wait()


@pytest.fixture
def without_sandbox(tmp_path: Path) -> str:
    """A PATH on which there is no bubblewrap."""
    directory = tmp_path / "no-bwrap"
    directory.mkdir()
    return str(directory)
