"""What the tests of the cluster need: a stand-in for the runner that records how it was started, and gangs."""

import asyncio
import contextlib
import hashlib
import itertools
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from tests.slurm.daemons import Slurm
from turnout.engines.remote import ClusterJob, Gang, Phase, RunnerCall
from turnout.engines.slurm import SlurmCluster, SlurmSettings
from turnout.job import Attempt, Launch, Policy, Program, Resources, Role, Spec

MIB = 1 << 20
TOKEN = "the-token-of-the-attempt"
TIMEOUT = 60
_attempts = itertools.count(time.time_ns() // 1000)

WAIT = "import time\ntime.sleep(600)"
NOTE_TERM = """
import signal, sys, time
def term(*_):
    open(f"{directory}/{name}.term", "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, term)
time.sleep(600)
"""

# Records how it was started, then runs the test's program.
RUNNER = """
import json, os, socket, sys, time
directory = {directory!r}
name = sys.argv[2].split("/")[-1]
record = dict(
    argv=sys.argv, env=dict(os.environ), pid=os.getpid(), at=time.time(), fds=os.listdir("/proc/self/fd"),
    addresses=os.popen("hostname -I").read().split(),
)
path = directory + "/" + name
with open(path + ".new", "w") as file:
    json.dump(record, file)
os.rename(path + ".new", path + ".json")
exec(open(directory + "/program.py").read())
"""


class Started(NamedTuple):
    """What a stand-in recorded."""

    argv: list[str]
    env: dict[str, str]
    pid: int
    at: float
    addresses: list[str]


class Bench:
    """A cluster of the shared Slurm, and a directory for what the stand-ins record."""

    def __init__(self, slurm: Slurm, directory: Path, endpoint: str, **settings: Any) -> None:
        self.slurm = slurm
        self.directory = directory
        self.endpoint = endpoint
        self.settings = SlurmSettings(environment=slurm.environment, **settings)
        self.cluster = SlurmCluster("lab", self.settings, directory / "cluster")
        self.archive = directory / "runner.py"
        self.archive.write_text(RUNNER.format(directory=str(directory)))
        self.program("")

    def with_settings(self, **settings: Any) -> "Bench":
        return Bench(self.slurm, self.directory, self.endpoint, **settings)

    def program(self, text: str) -> None:
        """What each stand-in does after it has recorded its start; `name` is its replica's name."""
        (self.directory / "program.py").write_text(text)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.archive.read_bytes()).hexdigest()

    def gang(self, *roles: Role, policy: Policy | None = None) -> Gang:
        attempt = Attempt(next(_attempts), 1)
        spec = Spec(roles or (role("worker"),), policy=policy or Policy())
        runner = RunnerCall(self.endpoint, "lab", TOKEN, "", str(self.archive), self.digest)
        return Gang(f"turnout-{attempt}", Launch(attempt, "project", "native", "job", spec), runner)

    def started(self) -> dict[str, Started]:
        found = {path.stem: json.loads(path.read_text()) for path in self.directory.glob("*.json")}
        return {name: Started(**{k: one[k] for k in Started._fields}) for name, one in found.items()}

    async def all_started(self, *names: str) -> dict[str, Started]:
        await eventually(lambda: set(self.started()) >= set(names))
        return self.started()

    async def ended(self, handle: str, seconds: float = TIMEOUT) -> ClusterJob:
        """As `look` says once the job is over."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = await self.cluster.look(handle)
            assert found is not None
            if found.phase is Phase.ENDED:
                return found
            await asyncio.sleep(0.2)
        raise TimeoutError(f"job {handle} has not ended: {found}")


def role(
    name: str, replicas: int = 1, cpus: float = 1, memory: int = 64, gpus: int = 0, leads: bool = True
) -> Role:
    """`memory` in MiB."""
    return Role(name, Program(("true",)), replicas, Resources.of(cpus, memory * MIB, gpus), leads=leads)


async def eventually(condition: Callable[[], object], seconds: float = TIMEOUT) -> None:
    """Slurm has no events to wait for."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.05)


@contextlib.contextmanager
def bench(slurm: Slurm, **settings: Any) -> Iterator[Bench]:
    """Nodes fetch the stand-in by HTTP, as they do the runner."""
    with (
        tempfile.TemporaryDirectory(prefix="turnout-bench-") as name,
        serving(slurm.address, Path(name)) as endpoint,
    ):
        one = Bench(slurm, Path(name), endpoint, **settings)
        try:
            yield one
        finally:
            slurm.cancel_all()
            slurm.wait_idle()


@contextlib.contextmanager
def serving(address: str, directory: Path) -> Iterator[str]:
    """What nodes ask of a service before a runner is there: its ping and `runner.pyz`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            archive = (directory / "runner.py").read_bytes()
            known = {
                "/runner/v1/ping": b'{"turnout": true}',
                f"/runner/v1/{hashlib.sha256(archive).hexdigest()}.pyz": archive,
            }
            body = known.get(self.path)
            self.send_response(404 if body is None else 200)
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *args: Any) -> None:
            with (directory / "requests").open("a") as file:
                file.write(self.path + "\n")

    with ThreadingHTTPServer((address, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{address}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


async def first_list(cluster: SlurmCluster) -> list[ClusterJob]:
    async with aclosing(cluster.watch()) as lists:
        return await anext(lists)


async def listed(one: Bench, handle: str, wanted: str) -> ClusterJob:
    """As `watch` says once its reason has this text."""
    async with asyncio.timeout(60), aclosing(one.cluster.watch()) as lists:
        async for jobs in lists:
            found = next((job for job in jobs if job.handle == handle), None)
            if found and wanted in found.why:
                return found
    raise AssertionError
