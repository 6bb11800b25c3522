"""A real service in its own process. Tests call it, kill it and start it again."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from tencentcloud.common import credential
from tencentcloud.common.profile.client_profile import ClientProfile
from tencentcloud.common.profile.http_profile import HttpProfile
from tencentcloud.tia.v20180226 import models, tia_client

from turnout.access import Key, make_token

KEY = Key("AKIDtest", "a-secret-for-tests", "default", root=True)
ROOT = Path(__file__).parent.parent


IMAGES = """
[images]
"python:*" = "plain"

[runtimes.plain]
"""
"""This machine's Python stands for these images, without a word about it in the logs."""


class Service:
    """A service on a free port. The users of jobs must be able to reach `data`."""

    def __init__(
        self, data: Path, config: str = "", env: Mapping[str, str] = {}, user: int | None = None
    ) -> None:
        self.data = data
        self.port = free_port()
        self.env = dict(env)
        self.user = user
        self.process: subprocess.Popen[bytes] | None = None
        self.config = data.parent / "turnout.toml"
        self.config.write_text(config)
        self.log = data.parent / "service.log"

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, *flags: str, wait: bool = True, wrapper: Sequence[str] = (), **env: str) -> "Service":
        """`wrapper` is a command that runs the one after it, such as `nice`."""
        command = [
            *wrapper,
            python_for(self.user),
            "-m",
            "turnout.cli.main",
            "serve",
            "--port",
            str(self.port),
        ]
        command += ["--data", str(self.data), "--config", str(self.config), *flags]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env=os.environ
                | {
                    "PYTHONPATH": python_path(),
                    "TURNOUT_ROOT_KEY": f"{KEY.id}:{KEY.secret}",
                    "HOME": str(self.data.parent),
                }
                | self.env
                | env,
                user=self.user,
                group=self.user,
                extra_groups=[] if self.user else None,
                cwd="/",
            )
        if wait:
            self.wait_until_up()
        return self

    def wait_until_up(self) -> None:
        """Waits until it answers and its engines have reported what they hold."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            assert self.process is not None
            if self.process.poll() is not None:
                raise AssertionError(
                    f"the service ended with {self.process.returncode}:\n{self.log.read_text()}"
                )
            try:
                with urllib.request.urlopen(self.endpoint + "/metrics", timeout=5) as response:
                    if b"turnout_engines_ready 1" in response.read():
                        return
            except OSError:
                pass
            time.sleep(0.02)
        raise AssertionError(f"the service does not answer:\n{self.log.read_text()}")

    def kill(self) -> None:
        """Sends SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(20)

    def wait_for_death(self) -> None:
        """Waits for the end of a service that kills itself at a named point."""
        assert self.process is not None
        self.process.wait(30)

    # Client calls.

    def sdk(self, method: str = "POST", sign: str = "TC3-HMAC-SHA256") -> tia_client.TiaClient:
        http = HttpProfile(
            protocol="http", endpoint=f"127.0.0.1:{self.port}", reqMethod=method, reqTimeout=30
        )
        profile = ClientProfile(signMethod=sign, httpProfile=http, language="en-US")
        return tia_client.TiaClient(credential.Credential(KEY.id, KEY.secret), "ap-beijing", profile)

    def create(self, name: str, *argv: str, **fields: Any) -> Any:
        request = models.CreateJobRequest()
        body = {"Name": name, "Cluster": "ap-beijing", "RuntimeVersion": "tia-1.7.0", "Command": list(argv)}
        request.from_json_string(json.dumps(body | fields))
        return self.sdk().CreateJob(request).Job

    def describe(self, name: str, cluster: str = "ap-beijing") -> Any:
        request = models.DescribeJobRequest()
        request.Name, request.Cluster = name, cluster
        return self.sdk().DescribeJob(request).Job

    def delete(self, name: str, cluster: str = "ap-beijing") -> None:
        request = models.DeleteJobRequest()
        request.Name, request.Cluster = name, cluster
        self.sdk().DeleteJob(request)

    def logs(self, name: str, cluster: str = "ap-beijing", limit: int = 1000) -> list[Any]:
        """All lines, fetched page by page."""
        lines: list[Any] = []
        context = ""
        while True:
            request = models.QueryLogsRequest()
            request.JobName, request.Cluster, request.Limit = name, cluster, limit
            request.StartTime, request.EndTime = "2018-01-01 00:00:00", "2099-01-01 00:00:00"
            request.Context = context
            answer = self.sdk().QueryLogs(request)
            lines += answer.Logs or []
            if answer.Listover:
                return lines
            context = answer.Context

    def native(self, path: str, timeout: float = 90) -> Any:
        headers = {"Authorization": f"Bearer {make_token(KEY, time.time())}"}
        request = urllib.request.Request(self.endpoint + "/turnout/v1" + path, headers=headers)
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return json.load(response)

    def put(self, url: str, content: str | bytes = "something", key: Key = KEY) -> None:
        """Uploads an object, as `turnout cp` does."""
        body = content.encode() if isinstance(content, str) else content
        request = urllib.request.Request(
            f"{self.endpoint}/turnout/v1/object?url={urllib.parse.quote(url, safe='')}",
            body,
            {"Authorization": f"Bearer {make_token(key, time.time())}"},
            method="PUT",
        )
        urllib.request.urlopen(request, timeout=30).close()

    def wait(self, name: str, until: str = "ended", timeout: float = 60, cluster: str = "") -> Any:
        """The job as the native API shows it, once it has started or ended."""
        where = f"&cluster={cluster}" if cluster else ""
        job = self.native(f"/jobs/{name}/wait?for={until}&timeout={timeout}{where}", timeout + 30)
        reached = job["ended"] is not None or (until == "started" and job["state"] in ("running", "stopping"))
        assert reached, f"after {timeout} s: {job}\n{self.log.read_text()}"
        return job

    def explain(self, name: str) -> Any:
        return self.native(f"/jobs/{name}/explain")

    def clean(self) -> None:
        """Kills the service, its supervisor, and everything that runs below them."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        supervisor = supervisor_pid(self.data)
        if supervisor:
            end_tree(supervisor)


@contextmanager
def running(
    config: str = "", env: Mapping[str, str] | None = None, user: int | None = None
) -> Iterator[Service]:
    """A service in a temporary directory. At the end its processes are killed and the directory is removed."""
    with reachable_directory(user) as directory:
        data = directory / "data"
        service = Service(data, config, env or {}, user)
        try:
            yield service
        finally:
            service.clean()


@contextmanager
def reachable_directory(user: int | None = None) -> Iterator[Path]:
    """A temporary directory that every user can reach, unlike pytest's `tmp_path`."""
    directory = Path(tempfile.mkdtemp(prefix="turnout-test-"))
    directory.chmod(0o755)
    if user is not None:
        os.chown(directory, user, user)
    try:
        yield directory
    finally:
        # A killed service leaves the mounts of images' layers.
        for point in mount_points(directory):
            subprocess.run(["umount", "--lazy", point], check=False)
        shutil.rmtree(directory, ignore_errors=True)


def mount_points(below: Path) -> list[str]:
    """The last mounted comes first."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in reversed(points) if point.startswith(f"{below}/")]


def python_for(user: int | None) -> str:
    """This interpreter, or the system's if the user may not execute this one."""
    closed = any(not parent.stat().st_mode & 0o001 for parent in Path(sys.executable).resolve().parents)
    return sys.executable if user is None or not closed else "/usr/bin/python3"


def python_path() -> str:
    """The PYTHONPATH for an interpreter outside of the virtual environment."""
    return os.pathsep.join(
        [str(ROOT / "src"), *(path for path in sys.path if path.endswith("site-packages"))]
    )


def supervisor_pid(data: Path) -> int | None:
    """The process id of the supervisor of this data directory; None if there is none."""
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                command = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if b"supervisor" in command and os.fsencode(data) in command:
                return int(process.name)
    return None


def children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    except OSError:
        pass
    return found


def end_tree(pid: int) -> None:
    """Kills a process and its descendants."""
    descendants = children(pid)
    for child in descendants:
        descendants += children(child)
    for process in [pid, *descendants]:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def children_with(parent: int, word: str) -> list[psutil.Process]:
    """The child processes that have `word` in their command line."""
    found: list[psutil.Process] = []
    for child in psutil.Process(parent).children():
        with suppress(psutil.NoSuchProcess):  # a zombie, or gone meanwhile
            if any(word in argument for argument in child.cmdline()):
                found.append(child)
    return found
