"""Slurm's commands on another machine, through a real sshd of our own."""

import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.running import free_port
from tests.slurm.daemons import Slurm
from tests.slurm.harness import WAIT, Bench, eventually, first_list, role
from turnout.engines import Unreachable
from turnout.engines.remote import EndKind, Phase
from turnout.engines.slurm.check import COMMANDS
from turnout.job import ReplicaName

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SSHD = """
Port {port}
ListenAddress 127.0.0.1
HostKey {directory}/host
AuthorizedKeysFile {directory}/login.pub
PidFile none
PermitRootLogin yes
PasswordAuthentication no
StrictModes no
UsePAM no
SetEnv SLURM_CONF={configuration} TMPDIR={temporary}
"""


class Login:
    """A login node: an sshd on a port of this machine, and the `command` that leads to it."""

    def __init__(self, directory: Path, slurm: Slurm) -> None:
        self._directory = directory
        self._port = free_port()
        for name in ("host", "login"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)]
            subprocess.run(command, check=True)
        environment = slurm.environment
        values = {"configuration": environment["SLURM_CONF"], "temporary": environment["TMPDIR"]}
        text = SSHD.format(port=self._port, directory=directory, **values)
        (directory / "sshd_config").write_text(text)
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd does not start without it
        options = [
            "BatchMode=yes",
            "StrictHostKeyChecking=accept-new",
            f"UserKnownHostsFile={directory}/known",
        ]
        options = [part for option in options for part in ("-o", option)]
        self.command = (
            "ssh", "-F", "none", "-p", str(self._port), "-i", str(directory / "login"), *options, "127.0.0.1",
        )  # fmt: skip

    def start(self) -> None:
        program = shutil.which("sshd", path="/usr/sbin:/usr/bin")
        assert program
        config = self._directory / "sshd_config"
        with (self._directory / "sshd.log").open("ab") as log:
            self._process = subprocess.Popen([program, "-D", "-e", "-f", str(config)], stderr=log)

    def answers(self) -> bool:
        return subprocess.run([*self.command, "true"], capture_output=True, timeout=60).returncode == 0

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)


@pytest.fixture
def login(slurm: Slurm, tmp_path: Path) -> Login:
    return Login(tmp_path, slurm)


@pytest.fixture
async def far(lab: Bench, login: Login) -> AsyncIterator[Bench]:
    """A cluster whose commands are reached by ssh alone."""
    login.start()
    try:
        await eventually(login.answers)
        yield lab.with_settings(command=login.command)
    finally:
        login.stop()


async def test_everything_works_through_ssh(far: Bench):
    far.program(WAIT)
    gang = far.gang(role("worker", 2), role("ps", cpus=2, leads=False))
    handle = await far.cluster.submit(gang)
    await far.all_started("worker-0", "worker-1", "ps-0")
    assert [job.phase for job in await first_list(far.cluster) if job.handle == handle] == [Phase.RUNNING]
    assert await far.cluster.submit(gang) == handle
    await far.cluster.cancel(handle)
    assert (await far.ended(handle)).end is EndKind.CANCELLED
    assert await far.cluster.look("999999") is None
    await far.cluster.cancel("999999")


async def test_last_words_through_ssh(far: Bench):
    far.program("print('it is', \"'quoted'\")\nraise SystemExit(3)")
    handle = await far.cluster.submit(far.gang())
    ended = await far.ended(handle)
    assert (ended.end, ended.waited is not None) == (EndKind.EXITED, True)
    assert "it is 'quoted'" in await far.cluster.last_words(handle, ReplicaName("worker", 0))


async def test_the_check_through_ssh(far: Bench):
    results = [result async for result in far.cluster.check(far.gang().runner)]
    assert all(result.ok for result in results), results
    assert results[0].detail.startswith(f"{', '.join(COMMANDS)} through `ssh ")


async def test_a_login_node_that_is_away(lab: Bench, login: Login):
    far = lab.with_settings(command=login.command)
    with pytest.raises(Unreachable, match=r"squeue failed: .*Connection refused"):
        await far.cluster.submit(far.gang())
    login.start()
    try:
        await eventually(login.answers)
        handle = await far.cluster.submit(far.gang())
        assert (await far.ended(handle)).end is EndKind.EXITED
    finally:
        login.stop()
