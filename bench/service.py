"""The service under test: a new `turnout serve`, on a real disk."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import psutil

from bench.client import KEY, Line, Requests
from turnout.config import LocalEngineSettings
from turnout.job import Attempt, from_uuid
from turnout.paths import Paths

SOURCES = Path(__file__).parent.parent / "src"


class Service:
    def __init__(
        self,
        directory: Path,
        sandbox: str = "none",
        network: str = "host",
        settings: str = "",
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`settings`: more lines for its settings file, with `{port}` for its port."""
        self.directory = directory
        self.paths = Paths(directory / "data")
        self.port = free_port()
        self.requests = Requests(self.port)
        self.process: subprocess.Popen[bytes] | None = None
        self._config = directory / "turnout.toml"
        self._log = directory / "service.log"
        directory.mkdir()
        self._env = {**_environment(), **env}
        more = settings.replace("{port}", str(self.port))
        self._config.write_text(f'[engines.local]\nsandbox = "{sandbox}"\nnetwork = "{network}"\n{more}')

    def start(self) -> float:
        """Seconds until /healthz answers."""
        command = [sys.executable, "-m", "turnout.cli.main", "serve", "--port", str(self.port)]
        command += ["--data", str(self.paths.data), "--config", str(self._config)]
        before = time.perf_counter()
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=self._env, cwd="/")
        while not self._healthy():
            if self.process.poll() is not None or time.perf_counter() - before > 60:
                raise RuntimeError(f"the service does not answer:\n{self._log.read_text()}")
            time.sleep(0.002)
        return time.perf_counter() - before

    @cached_property
    def line(self) -> Line:
        return Line(self.port)

    def run(
        self,
        name: str,
        argv: tuple[str, ...],
        machine: str = "0U0G0P",
        pause: float = 0,
        mounts: tuple[str, ...] = (),
    ) -> tuple[int, dict[str, Any]]:
        """When the request was sent, in nanoseconds since 1970, and the job once it has ended.

        Sends nothing else for `pause` seconds after the answer.
        """
        request = self.requests.create(name, argv, machine, mounts)
        before = time.time_ns()
        self.line.ask(request)
        time.sleep(pause)
        job = self.wait(name)
        if job["state"] != "succeeded":
            raise AssertionError(f"job {name}: {job}\n{self._log.read_text()}")
        return before, job

    def wait(self, job: str, until: str = "ended") -> dict[str, Any]:
        return msgspec.json.decode(self.line.ask(self.requests.wait(job, until)))

    def output(self, job: dict[str, Any], stream: str = "stdout") -> Path:
        """The log of a job's master."""
        job_id = from_uuid(job["uuid"])
        assert job_id is not None
        return self.paths.replica(Attempt(job_id, job["attempt"]), "master-0") / stream

    def stop(self) -> None:
        if "line" in self.__dict__:
            self.line.close()
            del self.line
        if self.process:
            self.process.terminate()
            self.process.wait(30)
            self.process = None

    def clean(self) -> None:
        """Ends all its processes. Its files stay until the end: deleting them would slow down the next measurement."""
        self.stop()
        left = [process for process in psutil.process_iter() if str(self.paths.data) in _command(process)]
        for process in psutil.wait_procs(left, timeout=5)[1]:
            process.kill()
        psutil.wait_procs(left, timeout=5)

    def _healthy(self) -> bool:
        try:
            probe = Line(self.port)
        except OSError:
            return False
        try:
            probe.ask(self.requests.get("/healthz"))
        except OSError:
            return False
        finally:
            probe.close()
        return True


@contextmanager
def running(
    directory: Path,
    sandbox: str = "none",
    network: str = "host",
    settings: str = "",
    env: Mapping[str, str] = MappingProxyType({}),
) -> Generator[Service]:
    service = Service(directory, sandbox, network, settings, env)
    try:
        service.start()
        yield service
    finally:
        service.clean()


@contextmanager
def working_directory(below: str) -> Generator[Path]:
    """A directory that every user can enter, so that jobs reach the files in it."""
    path = Path(tempfile.mkdtemp(prefix="turnout-bench-", dir=below))
    path.chmod(0o755)
    # On ext4 every new file is looked for beyond those that were just deleted nearby, by anybody: what is made in
    # here gets a place of its own, so that neighbours do not count (20 µs for each file instead of 300).
    subprocess.run(["chattr", "+T", path], stderr=subprocess.DEVNULL, check=False)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def file_system(path: Path) -> str:
    """Its type, such as ext4."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    above = [(where, kind) for where, kind in mounts if path.resolve().is_relative_to(where)]
    return max(above, key=lambda mount: len(mount[0]))[1]


def job_user() -> str:
    """Whom jobs run as, where that is somebody else than us."""
    return LocalEngineSettings().user if os.geteuid() == 0 else ""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def _environment() -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TURNOUT_")}
    return plain | {"PYTHONPATH": str(SOURCES), "TURNOUT_ROOT_KEY": f"{KEY.id}:{KEY.secret}"}


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
