"""What the engine finds on the machine when it opens: interpreters, sandbox, ports, capacity, NFS."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.engines.local.harness import EngineHarness
from turnout import config, pools
from turnout.engines import Refused
from turnout.engines.local.data import nfs
from turnout.engines.local.leases import PORTS, Leases
from turnout.engines.local.machine import interpreters, sandbox
from turnout.engines.local.machine.node import find_gpus, memory, node
from turnout.engines.local.users.account import own_account
from turnout.errors import Misconfigured, TimedOut, Unsupported
from turnout.job import Attempt, Launch, Mount, Program, Role, Spec
from turnout.storage import Mounted
from turnout.storage.source import parse

# Interpreters.


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_the_hosts_python_is_not_a_script_or_our_own(base_dir: Path, monkeypatch: pytest.MonkeyPatch):
    executable(base_dir / "shims" / "python3", "#!/bin/sh\nexec /usr/bin/python3\n")
    search = [str(base_dir / "shims"), str(Path(sys.prefix) / "bin"), "/usr/bin"]
    monkeypatch.setenv("PATH", os.pathsep.join(search))
    found = interpreters.host_python(own_account())
    assert found.path == "/usr/bin/python3"
    assert found.prefixes == ()
    assert found.version.startswith("3.")


def test_a_virtual_environment_has_its_own_and_its_base_prefix(base_dir: Path):
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", base_dir / "venv"], check=True)
    found = interpreters.inspect(str(base_dir / "venv" / "bin" / "python3"))
    assert found.prefixes == (str(base_dir / "venv"),)


@pytest.mark.parametrize("kind", ["none", "bubblewrap"])
async def test_a_runtime_has_the_python_and_mounts_of_the_settings(base_dir: Path, kind: str):
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", base_dir / "venv"], check=True)
    (base_dir / "extra").mkdir()
    (base_dir / "extra" / "x").write_text("from the image")
    python = str(base_dir / "venv" / "bin" / "python3")
    runtimes = {"tia-tf": {"python": python, "mounts": {"/opt/extra": str(base_dir / "extra")}}}
    async with EngineHarness(base_dir, sandbox=kind, runtimes=runtimes) as harness:
        assert python in harness.engine.runtime("tia-tf")
        assert "/usr/bin/python3" in harness.engine.runtime(
            "other"
        ) or sys.executable not in harness.engine.runtime("other")
        show = "import sys; print(sys.prefix)"
        program = f"{show}; import subprocess; subprocess.run(['python3', '-c', {show!r}])"
        end = await harness.run("python", "-c", program, runtime="tia-tf")
        assert harness.output(end.attempt).split() == [str(base_dir / "venv")] * 2, harness.output(
            end.attempt, stream=1
        )
        if kind == "bubblewrap":
            end = await harness.run("cat", "/opt/extra/x", runtime="tia-tf")
            assert harness.output(end.attempt) == "from the image"


@pytest.mark.parametrize(
    ("python", "complaint"),
    [
        ("/no/such/python", "must be the absolute path"),
        ("python3", "must be the absolute path"),
        ("/bin/true", "not a working Python"),
    ],
)
async def test_an_invalid_runtime_is_refused(base_dir: Path, python: str, complaint: str):
    with pytest.raises(Misconfigured, match=complaint):
        await EngineHarness(base_dir, sandbox="none", runtimes={"x": {"python": python}}).__aenter__()


# The sandbox.


def settings(**server: object) -> config.Settings:
    return config.load(flags={"server": server})


@pytest.fixture
def no_bubblewrap(monkeypatch: pytest.MonkeyPatch, base_dir: Path) -> None:
    executable(base_dir / "bin" / "bwrap", "#!/bin/sh\necho bwrap: no user namespaces >&2; exit 1\n")
    monkeypatch.setenv("PATH", str(base_dir / "bin"))


@pytest.mark.usefixtures("no_bubblewrap")
def test_on_loopback_a_missing_sandbox_is_a_warning(base_dir: Path, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        assert sandbox.options(settings(), own_account(), base_dir / "etc") == ()
    assert "NO SANDBOX" in caplog.text
    assert "no user namespaces" in caplog.text


@pytest.mark.usefixtures("no_bubblewrap")
def test_on_other_addresses_a_missing_sandbox_is_an_error(base_dir: Path):
    with pytest.raises(Misconfigured, match=r"no user namespaces.*install bubblewrap"):
        sandbox.options(settings(host="0.0.0.0"), own_account(), base_dir / "etc")


@pytest.mark.usefixtures("no_bubblewrap")
def test_a_sandbox_that_the_settings_require_must_work(base_dir: Path):
    wanted = config.load(flags={"engines": {"local": {"sandbox": "bubblewrap"}}})
    with pytest.raises(Misconfigured, match="does not work on this machine"):
        sandbox.options(wanted, own_account(), base_dir / "etc")


def test_the_sandboxs_etc_contains_no_secrets(base_dir: Path):
    assert sandbox.options(settings(), own_account(), base_dir / "etc")
    sandbox.write_users(base_dir / "etc", [own_account()])
    names = {path.name for path in (base_dir / "etc").iterdir()}
    assert {"passwd", "group", "hosts", "nsswitch.conf"} <= names
    assert not names & {"shadow", "gshadow", "sudoers", "ssh", "machine-id"}
    assert not (base_dir / "etc" / "ssl" / "private").exists()
    before = (base_dir / "etc").stat().st_ino
    sandbox.options(settings(), own_account(), base_dir / "etc")
    assert (base_dir / "etc").stat().st_ino == before


# Addresses and ports.


def launch(number: int, replicas: int = 1) -> Launch:
    role = Role("master", Program(("true",)), replicas=replicas, leads=True)
    return Launch(Attempt(number, 1), "default", "tia", "job", Spec((role,)))


def test_no_two_replicas_share_an_address_or_a_port():
    leases = Leases()
    peers = [peer for number in range(50) for peer in leases.lease(launch(number, 4))]
    assert len({peer.address for peer in peers}) == 200
    ports = [port for peer in peers for port in peer.ports]
    assert len(set(ports)) == 200 * PORTS
    assert max(ports) < int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])


def test_a_lease_is_kept_until_it_is_released():
    leases = Leases()
    first = leases.lease(launch(1))
    assert leases.lease(launch(1)) == first
    leases.release(Attempt(1, 1))
    leases.release(Attempt(1, 1))
    assert leases.lease(launch(1)) != first


def test_a_port_in_use_is_not_leased():
    leases = Leases()
    (peer,) = leases.lease(launch(1))
    with socket.create_server(("127.0.0.1", peer.ports[-1] + 2)):
        (other,) = leases.lease(launch(2))
    assert peer.ports[-1] + 2 not in other.ports


def test_a_restored_lease_is_not_leased_again():
    old = Leases()
    note = {str(peer.name): (peer.address, peer.ports) for peer in old.lease(launch(1, 2))}
    fresh = Leases()
    fresh.restore(Attempt(1, 1), note)
    assert [(peer.address, peer.ports) for peer in fresh.lease(launch(1, 2))] == list(note.values())
    assert fresh.address(Attempt(1, 1), "master-1") == note["master-1"][0]
    assert fresh.address(Attempt(9, 9), "master-0") == ""


# Capacity.


def test_the_capacity_is_that_of_the_machine():
    local = config.LocalEngineSettings(gpus=3, overcommit=2)
    here = node(local, find_gpus(local.gpus))
    assert here.millicores == 2000 * len(os.sched_getaffinity(0))
    assert here.gpus == 3
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < here.memory == memory() <= total


# NFS: the test machines cannot mount it, so the tests record the command.


def mounted(source: str) -> Mounted:
    found = parse(source)
    assert isinstance(found, Mounted)
    return found


def test_nfs_is_mounted_by_the_kernel(base_dir: Path):
    ran: list[list[str]] = []

    def record(argv: list[str]) -> tuple[int, str]:
        ran.append(argv)
        return 0, ""

    mounts = nfs.NfsMounter(base_dir / "nfs", record, root=True)
    found = mounts.mount_blocking(mounted("nfs://10.0.0.5/exports/my data"))
    assert found.parent == base_dir / "nfs"
    options = "rw,nosuid,nodev,soft,timeo=100"
    assert ran == [["mount", "-t", "nfs", "-o", options, "--", "10.0.0.5:/exports/my data", str(found)]]
    assert mounts.mount_blocking(mounted("nfs://10.0.0.5/exports/other")) != found
    assert mounts.mount_blocking(mounted("nfs://10.0.0.5/" + "long/" * 500)).is_dir()


def test_an_error_says_why_nfs_cannot_be_mounted(base_dir: Path):
    broken = nfs.NfsMounter(base_dir / "nfs", lambda argv: (32, "mount.nfs: No such device"), root=True)
    with pytest.raises(
        Unsupported, match=r"nfs://10\.0\.0\.5/x cannot be mounted: mount\.nfs: No such device"
    ):
        broken.mount_blocking(mounted("nfs://10.0.0.5/x"))
    with pytest.raises(Unsupported, match="runs as root"):
        nfs.NfsMounter(base_dir / "nfs", root=False).mount_blocking(mounted("nfs://10.0.0.5/x"))
    with pytest.raises(Unsupported, match="CephFS is not supported"):
        broken.mount_blocking(mounted("cephfs://10.0.0.5/x"))


def test_an_error_names_a_missing_or_hanging_mount_program(base_dir: Path):
    missing = nfs.NfsMounter(base_dir / "nfs", lambda argv: nfs.run(["/no/such", *argv[1:]]), root=True)
    with pytest.raises(Unsupported, match=r"cannot be mounted: .*No such file or directory: '/no/such'"):
        missing.mount_blocking(mounted("nfs://10.0.0.5/x"))
    hanging = nfs.NfsMounter(
        base_dir / "nfs", lambda argv: nfs.run(["sleep", "1000"], seconds=0.01), root=True
    )
    with pytest.raises(Unsupported, match=r"no answer within 0\.01 seconds"):
        hanging.mount_blocking(mounted("nfs://10.0.0.5/x"))


async def test_a_server_that_does_not_answer_delays_no_other_server(base_dir: Path):
    answers = threading.Event()

    def mount(argv: list[str]) -> tuple[int, str]:
        if "silent" in argv[-2]:
            answers.wait()
        return 0, ""

    mounts = nfs.NfsMounter(base_dir / "nfs", mount, root=True)
    hasty = nfs.NfsMounter(base_dir / "nfs", mount, root=True, seconds=0.01)
    stuck = [asyncio.create_task(mounts.mount(mounted(f"nfs://silent/{n}"), "a")) for n in range(12)]
    await asyncio.sleep(0)
    with pytest.raises(TimedOut, match="nfs://silent/x cannot be mounted: silent: there was no answer"):
        await hasty.mount(mounted("nfs://silent/x"), "a")
    assert (await mounts.mount(mounted("nfs://other/x"), "a")).is_dir()
    assert await pools.disk.run("project", int, "7") == 7
    answers.set()
    assert len({*await asyncio.gather(*stuck)}) == 12


async def test_many_servers_that_do_not_answer_delay_no_other_project(base_dir: Path):
    answers = threading.Event()

    def mount(argv: list[str]) -> tuple[int, str]:
        if "silent" in argv[-2]:
            answers.wait()
        return 0, ""

    mounts = nfs.NfsMounter(base_dir / "nfs", mount, root=True)
    stuck = [asyncio.create_task(mounts.mount(mounted(f"nfs://silent-{n}/x"), "a")) for n in range(40)]
    await asyncio.sleep(0)
    assert (await mounts.mount(mounted("nfs://other/x"), "b")).is_dir()
    answers.set()
    assert len({*await asyncio.gather(*stuck)}) == 40


async def test_a_server_that_does_not_answer_blocks_one_thread_only(base_dir: Path):
    answers, began = threading.Event(), threading.Semaphore(0)
    at_once: list[str] = []

    def mount(argv: list[str]) -> tuple[int, str]:
        at_once.append(argv[-2])
        began.release()
        answers.wait()
        return 0, ""

    mounts = nfs.NfsMounter(base_dir / "nfs", mount, root=True, seconds=0.2)
    tries = [asyncio.create_task(mounts.mount(mounted(f"nfs://silent/{n}"), "a")) for n in range(6)]
    assert all(isinstance(one, TimedOut) for one in await asyncio.gather(*tries, return_exceptions=True))
    assert len(at_once) == 1
    answers.set()


def test_a_mount_command_that_cannot_be_killed_is_abandoned(base_dir: Path, monkeypatch: pytest.MonkeyPatch):
    """Like a command that waits in the kernel. Here it is a process group whose pipe stays open."""
    monkeypatch.setattr(nfs, "_KILL_SECONDS", 0.05)
    monkeypatch.setattr(subprocess.Popen, "kill", lambda self: None)
    mounts = nfs.NfsMounter(base_dir / "nfs", lambda argv: nfs.run(["sleep", "30"], seconds=0.05), root=True)
    with pytest.raises(Unsupported, match=r"no answer within 0\.05 seconds"):
        mounts.mount_blocking(mounted("nfs://10.0.0.5/x"))
    with pytest.raises(Unsupported, match=r"an earlier mount from 10\.0\.0\.5 hangs in the kernel"):
        mounts.mount_blocking(mounted("nfs://10.0.0.5/y"))
    for process in mounts._hanging.values():  # pyright: ignore[reportPrivateUsage]
        process.terminate()
        process.wait()
    with pytest.raises(Unsupported, match=r"no answer within"):
        mounts.mount_blocking(mounted("nfs://10.0.0.5/x"))
    for process in mounts._hanging.values():  # pyright: ignore[reportPrivateUsage]
        process.terminate()
        process.wait()


async def test_a_job_with_an_impossible_mount_is_refused(unsandboxed: EngineHarness):
    """The message does not repeat the secret in the source."""
    with pytest.raises(Refused, match=r"^cephfs://host/x cannot be mounted: CephFS"):
        await unsandboxed.start("true", mounts=(Mount("cephfs://admin:secret@host/x", "/data"),))
    assert (await unsandboxed.run("true")).code == 0
