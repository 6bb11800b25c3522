"""A real mount from a real server, if the kernel has an NFS client; otherwise the error names what is missing."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.engines.local.harness import EngineHarness
from turnout.engines.local.data import nfs
from turnout.errors import Unsupported
from turnout.job import Mount
from turnout.storage import Mounted

SERVER = shutil.which("ganesha.nfsd")
PORT = 2049
"""The port is fixed, because the mount command names none."""
EXPORT = """
NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = {port}; Bind_addr = 127.0.0.1; Enable_NLM = false; Enable_RQUOTA = false; }}
NFSV4 {{ Grace_Period = 1; Lease_Lifetime = 5; RecoveryRoot = "{state}"; }}
EXPORT {{ Export_Id = 1; Path = "{path}"; Pseudo = "/data"; Access_Type = RW; Squash = No_Root_Squash; SecType = sys;
    FSAL {{ Name = VFS; }} }}
"""


@pytest.fixture
def exported(base_dir: Path) -> Iterator[Path]:
    """What the server exports as /data."""
    directory, state = base_dir / "exported", base_dir / "state"
    directory.mkdir()
    directory.chmod(0o777)
    state.mkdir()
    (base_dir / "ganesha.conf").write_text(EXPORT.format(port=PORT, path=directory, state=state))
    command = [
        SERVER,
        "-F",
        "-f",
        base_dir / "ganesha.conf",
        "-L",
        base_dir / "ganesha.log",
        "-p",
        base_dir / "ganesha.pid",
    ]
    server = subprocess.Popen(command)
    try:
        _wait(server, base_dir / "ganesha.log")
        yield directory
    finally:
        server.kill()
        server.wait()


def _wait(server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(300):
        with suppress(OSError), socket.create_connection(("127.0.0.1", PORT)):
            return
        assert server.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.fixture
def missing() -> str:
    """What this machine needs to mount NFS. The client may be a kernel module that is not loaded yet."""
    with suppress(OSError):
        subprocess.run(["modprobe", "nfs"], stderr=subprocess.DEVNULL, check=False)
    return (nfs.missing_requirements() or [""])[0]


@pytest.fixture
def can_mount(missing: str) -> None:
    if missing:
        pytest.skip(f"a mount needs {missing}")


@pytest.mark.slow
@pytest.mark.skipif(not SERVER, reason="nfs-ganesha and nfs-ganesha-vfs are not installed")
@pytest.mark.usefixtures("can_mount")
async def test_a_job_reads_and_writes_a_real_export(sandboxed: EngineHarness, exported: Path):
    (exported / "hello").write_text("from the server\n")
    writable = Mount("nfs://127.0.0.1/data", "/rw")
    readable = Mount("nfs://127.0.0.1/data", "/ro", read_only=True)
    script = "cat /rw/hello; echo kept > /rw/made; cat /ro/made; touch /ro/not || echo refused"
    try:
        end = await sandboxed.run("sh", "-c", script, mounts=(writable, readable))
        assert sandboxed.output(end.attempt) == "from the server\nkept\nrefused\n"
        assert (exported / "made").read_text() == "kept\n"
        assert not (exported / "not").exists()
    finally:
        for mounted in (sandboxed.paths.supervisor / "nfs").iterdir():
            subprocess.run(["umount", "-l", mounted], check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is let as far as the mount")
def test_the_error_names_what_the_machine_needs(base_dir: Path, missing: str):
    with pytest.raises(Unsupported) as raised:
        nfs.NfsMounter(base_dir / "nfs").mount_blocking(
            Mounted("nfs://127.0.0.1/x", "nfs", "127.0.0.1", "x")
        )  # no server is there
    assert str(raised.value).startswith("nfs://127.0.0.1/x cannot be mounted: ")
    assert str(raised.value).endswith(f"; it needs {missing}") or not missing
