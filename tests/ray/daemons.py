"""A real Ray on this machine: a head without CPUs, and nodes with addresses of their own, 127.77.x.y.

Each instance has its own addresses, port and directory, so that several of them can run at the same time.
"""

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.ray.installation import installed

TIMEOUT = 120
CPUS = 4
TIDY = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "RAY_USAGE_STATS_ENABLED": "0"}
# Ray notices a lost node by its health checks. These are faster than the usual ones.
HEALTH = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "10",
}


_networks = itertools.count(77)


class Node(NamedTuple):
    address: str
    cpus: int
    resources: str = "{}"
    gpus: int = 0


class Ray:
    """Nodes can be killed and started again one by one; `close` ends exactly what this instance started."""

    def __init__(self, workers: int = 2) -> None:
        self.python = installed()
        self.directory = Path(tempfile.mkdtemp(prefix="turnout-ray-", dir="/tmp"))
        self.network = f"127.{next(_networks)}.{os.getpid() % 250 + 1}"
        self.port = _free_port()
        self.nodes = [
            Node(f"{self.network}.1", 0),
            Node(f"{self.network}.2", CPUS),
            Node(f"{self.network}.3", CPUS, '{"rack": 2}', gpus=2),
        ][: 1 + workers]
        """The first is the head."""
        self._starts = itertools.count()
        self._commands: dict[str, subprocess.Popen[bytes]] = {}
        self._processes: dict[str, list[psutil.Process]] = {}

    @property
    def head(self) -> str:
        return self.nodes[0].address

    @property
    def address(self) -> str:
        return f"{self.head}:{self.port}"

    @property
    def workers(self) -> list[str]:
        return [node.address for node in self.nodes[1:]]

    @property
    def environment(self) -> dict[str, str]:
        return TIDY | HEALTH | {"HOME": str(self.directory)}

    def __enter__(self) -> "Ray":
        try:
            for node in self.nodes:
                self.start(node.address)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for address in reversed(list(self._commands)):
            self.kill(address)
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self, address: str) -> None:
        """Returns when the node is up. Nodes of one session must not start at the same time."""
        node = next(one for one in self.nodes if one.address == address)
        where = [
            "--head",
            f"--port={self.port}",
            "--include-dashboard=false",
            f"--temp-dir={self.directory}/s",
        ]
        if address != self.head:
            where = [f"--address={self.address}"]
        command = [
            str(self.python.with_name("ray")), "start", "--block", *where, f"--node-ip-address={address}",
            f"--num-cpus={node.cpus}", f"--num-gpus={node.gpus}", f"--resources={node.resources}",
            "--memory=32000000000", "--object-store-memory=100000000", "--disable-usage-stats",
            "--min-worker-port=0", "--max-worker-port=0",
        ]  # fmt: skip
        log = self.directory / f"{address}-{next(self._starts)}.log"
        with log.open("wb") as output:
            self._commands[address] = subprocess.Popen(
                ["setpriv", "--pdeathsig=TERM", *command],
                env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/",
            )  # fmt: skip
        self.wait(lambda: self._is_up(address, log), f"{address} does not start: {log.read_text()[-2000:]}")
        self._processes[address] = psutil.Process(self._commands[address].pid).children(recursive=True)

    def _is_up(self, address: str, log: Path) -> bool:
        assert self._commands[address].poll() is None, log.read_text()
        return "This command will now block" in log.read_text()

    def process(self, address: str, name: str) -> psutil.Process:
        """`raylet`, or `gcs_server` on the head."""
        return next(one for one in self._processes[address] if one.is_running() and one.name() == name)

    def kill(self, address: str) -> None:
        """As if its machine had lost its power."""
        command = self._commands.pop(address)
        found = [psutil.Process(command.pid)] if command.poll() is None else []
        for one in list(found):
            with contextlib.suppress(psutil.NoSuchProcess):
                found += one.children(recursive=True)
        for one in found + self._processes.pop(address, []):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGKILL)
        command.wait()

    def wait(self, condition: Callable[[], object], trouble: str = "", seconds: float = TIMEOUT) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, trouble or "it did not happen"
            time.sleep(0.05)

    def run(self, program: str, *arguments: str) -> str:
        """A program that is a driver of this Ray, with `ray` imported."""
        options = "namespace='turnout', logging_level='error', log_to_driver=False"
        begin = f"import ray, sys\nray.init({self.address!r}, {options})\n"
        done = subprocess.run(
            [str(self.python), "-c", begin + program, *arguments],
            env=self.environment, capture_output=True, text=True, timeout=TIMEOUT,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def groups(self) -> list[str]:
        """The names of the placement groups that are there."""
        rows = "rows = ray.util.placement_group_table().values()\n"
        return self.run(rows + "print(*[row['name'] for row in rows if row['state'] != 'REMOVED'])").split()


def _free_port() -> int:
    """Outside of the range from which Ray takes the ports of its workers."""
    while True:
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        if port > 20000:
            return port
