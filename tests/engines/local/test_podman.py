"""Replicas whose image podman runs. What they have in common with others is tested by the same tests, with podman."""

import asyncio
import json
import os
import pwd
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engines.conformance import EngineConformance
from tests.engines.local.harness import MASTER, EngineHarness, PodmanHarness, running_processes
from tests.engines.local.test_ordinary_user import readable_code as readable_code
from tests.ordinary import run_as_nobody
from turnout import config
from turnout.engines.local.machine import podman
from turnout.engines.local.users.account import Account
from turnout.errors import Misconfigured
from turnout.job import Cause, Mount, Resources
from turnout.runner.supervisor import procfs
from turnout.runner.supervisor.replicas.podman_client import Tools, command, configuration, read

slow_as_root = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0, reason="test_it_works_as_an_ordinary_user does what an ordinary user can"
    ),
]
TOOLS = Tools("/usr/bin/podman", "/usr/bin/crun", "/usr/bin/conmon", "/usr/bin/catatonit")


@pytest.fixture
async def harness(base_dir: Path) -> AsyncIterator[EngineHarness]:
    async with PodmanHarness(base_dir) as one:
        yield one


class TestConformance(EngineConformance):
    pytestmark = slow_as_root

    @pytest.fixture
    async def harness(self, base_dir: Path) -> AsyncIterator[EngineHarness]:
        async with PodmanHarness(base_dir) as one:
            yield one


class TestContainers:
    pytestmark = slow_as_root

    async def test_variables_are_on_no_command_line(self, harness: EngineHarness):
        attempt = await harness.start(
            "sh", "-c", 'echo "$TOKEN"; sleep 1000', env={"TOKEN": 'secret-4711"\\\n\u00e9\U0001f600\x7f'}
        )
        printed = await harness.wait_for_output(attempt, "\x7f")
        assert printed == 'secret-4711"\\\n\u00e9\U0001f600\x7f\n'
        assert running_processes("secret-4711") == []

    async def test_only_the_image_and_what_belongs_to_the_job_is_visible(self, harness: EngineHarness):
        assert harness.images
        image = {path.name for layer in ("base", "python") for path in harness.images.layer(layer).iterdir()}
        end = await harness.run("sh", "-c", "ls /; echo of sys:; ls /sys; ls -d /proc/[0-9]*")
        top, _, rest = harness.output(end.attempt).partition("of sys:\n")
        assert set(top.split()) == image | {"dev", "opt", "proc", "run", "sys"}
        assert rest.split() == ["/proc/1", "/proc/2"]

    async def test_a_stop_reaches_the_whole_process_group(self, harness: EngineHarness):
        script = """
import os, signal, sys, time
child = os.fork()
name = b"parent" if child else b"child"
def stopped(*_):
    os.write(1, name + b" stopped\\n")
    if child:
        os.wait()
    os._exit(3)
signal.signal(signal.SIGTERM, stopped)
os.write(1, name + b" ready\\n")
while True:
    time.sleep(1000)
"""
        attempt = await harness.python(script)
        await harness.wait_for_output(attempt, "parent ready")
        await harness.wait_for_output(attempt, "child ready")
        await harness.engine.stop(attempt, 30)
        end = await harness.ended(attempt)
        assert (end.cause, end.code) == (Cause.STOPPED, 3)
        assert sorted(harness.output(attempt).splitlines()[2:]) == ["child stopped", "parent stopped"]

    @pytest.mark.parametrize("victim", ["first", "second", "podman's own"])
    async def test_nothing_is_left_when_a_process_around_the_container_is_killed(
        self, harness: EngineHarness, victim: str
    ):
        """Of the service's side: the client, the first process of its namespaces, and conmon."""
        marker = f"sleep-{os.getpid()}-{id(harness)}"
        attempt = await harness.start("sh", "-c", f"echo begin; sleep 1000; echo {marker}")
        await harness.wait_for_output(attempt, "begin")
        client, first, *_ = procfs.marked_processes()[f"{attempt}/{MASTER}"]
        container = procfs.init_of_container(first)
        assert container
        conmon = next(pid for pid in procfs.children(first) if container in procfs.children(pid))
        ended = [asyncio.create_task(_gone(os.pidfd_open(pid))) for pid in (first, conmon, container)]
        os.kill({"first": client, "second": first, "podman's own": conmon}[victim], signal.SIGKILL)
        end = await harness.ended(attempt)
        assert end.cause in (Cause.EXIT, Cause.STAGING)
        assert (end.code, end.signal) != (0, None)
        await asyncio.gather(*ended)
        assert procfs.marked_processes().get(f"{attempt}/{MASTER}") is None

    async def test_a_limit_that_is_too_small_for_podman(self, harness: EngineHarness):
        end = await harness.run("true", resources=Resources(memory=8 << 20))
        assert end.cause == Cause.OUT_OF_MEMORY

    async def test_a_mount_that_podman_cannot_name_is_refused(self, harness: EngineHarness, base_dir: Path):
        end = await harness.run("true", mounts=(Mount(f"file://{base_dir}", "/da:ta"),))
        assert end.cause == Cause.REFUSED
        assert end.message == "podman cannot mount a path with a colon: '/da:ta'"


async def _gone(pidfd: int) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        await asyncio.wait_for(ended.wait(), 30)
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_it_works_as_an_ordinary_user(base_dir: Path, readable_code: Path):
    nobody = pwd.getpwnam("nobody")
    home = base_dir / "home"
    home.mkdir()
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    done = run_as_nobody("tests.engines.local.run_podman_as_user", home, code=readable_code)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["exit", 3, "1000\n", ""]


def test_options_of_the_sandbox_become_options_of_podman():
    options = [
        "--bind",
        "/stage/root",
        "/",
        "--unshare-pid",
        "--dev-bind",
        "/devices",
        "/dev",
        "--tmpfs",
        "/dev/shm",
    ]
    options += [
        "--perms",
        "1777",
        "--hostname",
        "worker-0",
        "--uid",
        "1000",
        "--gid",
        "100",
        "--cap-drop",
        "ALL",
    ]
    options += ["--ro-bind", "/home/out", "/run/out", "--bind", "/stage/0", "/data", "--setenv", "A", "b=c"]
    options += ["--dev-bind", "/dev/nvidia0", "/dev/nvidia0", "--chdir", "/app"]
    found = command(read(options), TOOLS, "/state", ["train", "--fast"])
    assert found[-4:] == ["--rootfs", "/stage/root", "train", "--fast"]
    volumes = [found[number + 1] for number, word in enumerate(found) if word == "--volume"]
    assert volumes == [
        "/home/out:/run/out:ro",
        "/home/out/stdout:/dev/stdout",
        "/home/out/stderr:/dev/stderr",
        "/stage/0:/data",
        "/dev/nvidia0:/dev/nvidia0",
    ]
    for name, value in (("--user", "1000:100"), ("--uidmap", "1000:0:1"), ("--gidmap", "100:0:1")):
        assert found[found.index(name) + 1] == value
    assert found[found.index("--workdir") + 1] == "/app"
    assert "A=b=c" not in found
    assert 'env = ["A=b=c"]' in configuration(read(options), TOOLS, "/state")["containers.conf"]


def test_what_podman_needs_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(podman, "_ELSEWHERE", str(tmp_path))
    with pytest.raises(
        Misconfigured, match="needs podman, crun, conmon, catatonit, which this machine does not have"
    ):
        podman.find(Account("me", os.getuid(), os.getgid()))


def test_a_podman_that_cannot_run_anything_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name in ("podman", "crun", "conmon", "catatonit"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'Error: no containers today' >&2\nexit 125\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        Misconfigured, match=r"cannot run a container for the user of a job here: .*no containers today"
    ):
        podman.find(Account("me", os.getuid(), os.getgid()))


def test_docker_is_refused_with_the_reason():
    with pytest.raises(Misconfigured, match=r'"docker" is not supported: .*Set it to "sandbox" or "podman"'):
        config.load(flags={"engines": {"local": {"containers": "docker"}}})
