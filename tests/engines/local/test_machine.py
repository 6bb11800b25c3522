"""What the engine finds out about the machine when it opens."""

import logging
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.local.yard import Yard
from turnout import config
from turnout.engines import Refused
from turnout.engines.local import interpreters, nfs, sandbox
from turnout.engines.local.account import own
from turnout.engines.local.leases import PORTS, Leases
from turnout.engines.local.node import find_gpus, memory, node
from turnout.errors import Misconfigured, Unsupported
from turnout.job import Attempt, Launch, Mount, Program, Role, Spec

# Interpreters.


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_the_hosts_python_is_a_real_one(place: Path, monkeypatch: pytest.MonkeyPatch):
    executable(place / "shims" / "python3", "#!/bin/sh\nexec /usr/bin/python3\n")
    search = [str(place / "shims"), str(Path(sys.prefix) / "bin"), "/usr/bin"]
    monkeypatch.setenv("PATH", os.pathsep.join(search))
    found = interpreters.host_python(own())
    assert found.path == "/usr/bin/python3"
    assert found.prefixes == ()
    assert found.version.startswith("3.")


def test_an_environment_brings_its_own_and_its_base_prefix(place: Path):
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", place / "venv"], check=True)
    found = interpreters.ask(str(place / "venv" / "bin" / "python3"))
    assert found.prefixes == (str(place / "venv"),)


@pytest.mark.parametrize("kind", ["none", "bubblewrap"])
async def test_a_runtime_is_what_the_settings_say(place: Path, kind: str):
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", place / "venv"], check=True)
    (place / "extra").mkdir()
    (place / "extra" / "x").write_text("from the image")
    python = str(place / "venv" / "bin" / "python3")
    runtimes = {"tia-tf": {"python": python, "mounts": {"/opt/extra": str(place / "extra")}}}
    async with Yard(place, sandbox=kind, runtimes=runtimes) as yard:
        assert python in yard.engine.runtime("tia-tf")
        assert "/usr/bin/python3" in yard.engine.runtime(
            "other"
        ) or sys.executable not in yard.engine.runtime("other")
        show = "import sys; print(sys.prefix)"
        program = f"{show}; import subprocess; subprocess.run(['python3', '-c', {show!r}])"
        end = await yard.run("python", "-c", program, runtime="tia-tf")
        assert yard.out(end.attempt).split() == [str(place / "venv")] * 2, yard.out(end.attempt, stream=1)
        if kind == "bubblewrap":
            end = await yard.run("cat", "/opt/extra/x", runtime="tia-tf")
            assert yard.out(end.attempt) == "from the image"


@pytest.mark.parametrize(
    ("python", "complaint"),
    [
        ("/no/such/python", "must be the path"),
        ("python3", "must be the path"),
        ("/bin/true", "not a Python that works"),
    ],
)
async def test_a_runtime_that_cannot_be_is_refused(place: Path, python: str, complaint: str):
    with pytest.raises(Misconfigured, match=complaint):
        await Yard(place, sandbox="none", runtimes={"x": {"python": python}}).__aenter__()


# The sandbox.


def settings(**server: object) -> config.Settings:
    return config.load(flags={"server": server})


@pytest.fixture
def no_bubblewrap(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    executable(place / "bin" / "bwrap", "#!/bin/sh\necho bwrap: no user namespaces >&2; exit 1\n")
    monkeypatch.setenv("PATH", str(place / "bin"))


@pytest.mark.usefixtures("no_bubblewrap")
def test_on_loopback_it_may_be_missing_but_loudly(place: Path, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        assert sandbox.options(settings(), own(), place / "etc") == ()
    assert "NO SANDBOX" in caplog.text
    assert "no user namespaces" in caplog.text


@pytest.mark.usefixtures("no_bubblewrap")
def test_elsewhere_it_may_not(place: Path):
    with pytest.raises(Misconfigured, match=r"no user namespaces.*install bubblewrap"):
        sandbox.options(settings(host="0.0.0.0"), own(), place / "etc")


@pytest.mark.usefixtures("no_bubblewrap")
def test_who_asks_for_it_gets_it_or_nothing(place: Path):
    wanted = config.load(flags={"engines": {"local": {"sandbox": "bubblewrap"}}})
    with pytest.raises(Misconfigured, match="does not work here"):
        sandbox.options(wanted, own(), place / "etc")


def test_its_etc_holds_no_secrets(place: Path):
    assert sandbox.options(settings(), own(), place / "etc")
    names = {path.name for path in (place / "etc").iterdir()}
    assert {"passwd", "group", "hosts", "nsswitch.conf"} <= names
    assert not names & {"shadow", "gshadow", "sudoers", "ssh", "machine-id"}
    assert not (place / "etc" / "ssl" / "private").exists()
    before = (place / "etc").stat().st_ino
    sandbox.options(settings(), own(), place / "etc")
    assert (place / "etc").stat().st_ino == before


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


def test_a_port_that_somebody_listens_on_is_passed_over():
    leases = Leases()
    (peer,) = leases.lease(launch(1))
    with socket.create_server(("127.0.0.1", peer.ports[-1] + 2)):
        (other,) = leases.lease(launch(2))
    assert peer.ports[-1] + 2 not in other.ports


def test_a_restored_lease_is_not_given_away():
    old = Leases()
    note = {str(peer.name): (peer.address, peer.ports) for peer in old.lease(launch(1, 2))}
    fresh = Leases()
    fresh.restore(Attempt(1, 1), note)
    assert [(peer.address, peer.ports) for peer in fresh.lease(launch(1, 2))] == list(note.values())
    assert fresh.address(Attempt(1, 1), "master-1") == note["master-1"][0]
    assert fresh.address(Attempt(9, 9), "master-0") == ""


# Capacity.


def test_capacity_is_the_machine():
    local = config.LocalEngine(gpus=3, overcommit=2)
    here = node(local, find_gpus(local.gpus))
    assert here.cpu == 2 * len(os.sched_getaffinity(0))
    assert here.gpus == 3
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < here.memory == memory() <= total


# NFS: no kernel of ours can mount it, so what is run is recorded.


def test_nfs_is_mounted_by_the_kernel(place: Path):
    ran: list[list[str]] = []

    def record(argv: list[str]) -> tuple[int, str]:
        ran.append(argv)
        return 0, ""

    mounts = nfs.Mounts(place / "nfs", record, root=True)
    found = mounts.mount("nfs://10.0.0.5/exports/my data")
    assert found.parent == place / "nfs"
    options = "rw,nosuid,nodev,soft,timeo=100"
    assert ran == [["mount", "-t", "nfs", "-o", options, "--", "10.0.0.5:/exports/my data", str(found)]]
    assert mounts.mount("nfs://10.0.0.5/exports/other") != found
    assert mounts.mount("nfs://10.0.0.5/" + "long/" * 500).is_dir()


def test_why_it_cannot_be_mounted_is_told(place: Path):
    broken = nfs.Mounts(place / "nfs", lambda argv: (32, "mount.nfs: No such device"), root=True)
    with pytest.raises(
        Unsupported, match=r"nfs://10\.0\.0\.5/x cannot be mounted: mount\.nfs: No such device"
    ):
        broken.mount("nfs://10.0.0.5/x")
    with pytest.raises(Unsupported, match="runs as root"):
        nfs.Mounts(place / "nfs", root=False).mount("nfs://10.0.0.5/x")
    with pytest.raises(Unsupported, match="CephFS is not supported"):
        broken.mount("cephfs://10.0.0.5/x")


def test_a_missing_program_or_one_that_hangs_is_told(place: Path):
    missing = nfs.Mounts(place / "nfs", lambda argv: nfs.run(["/no/such", *argv[1:]]), root=True)
    with pytest.raises(Unsupported, match=r"cannot be mounted: .*No such file or directory: '/no/such'"):
        missing.mount("nfs://10.0.0.5/x")
    hanging = nfs.Mounts(place / "nfs", lambda argv: nfs.run(["sleep", "1000"], patience=0.01), root=True)
    with pytest.raises(Unsupported, match=r"no answer within 0\.01 seconds"):
        hanging.mount("nfs://10.0.0.5/x")


async def test_a_job_whose_mount_cannot_be_is_refused(bare_yard: Yard):
    with pytest.raises(Refused, match="CephFS"):
        await bare_yard.start("true", mounts=(Mount("cephfs://host/x", "/data"),))
    assert (await bare_yard.run("true")).code == 0
