"""A real mount from a real server, where the kernel has an NFS client; where it has none, what is missing is named."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.engines.local.yard import Yard
from turnout.engines.local import nfs
from turnout.errors import Unsupported
from turnout.job import Mount

SERVER = shutil.which("ganesha.nfsd")
PORT = 2049
"""The mount call names none."""
EXPORT = """
NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = {port}; Bind_addr = 127.0.0.1; Enable_NLM = false; Enable_RQUOTA = false; }}
NFSV4 {{ Grace_Period = 1; Lease_Lifetime = 5; RecoveryRoot = "{state}"; }}
EXPORT {{ Export_Id = 1; Path = "{path}"; Pseudo = "/data"; Access_Type = RW; Squash = No_Root_Squash; SecType = sys;
    FSAL {{ Name = VFS; }} }}
"""


@pytest.fixture
def exported(place: Path) -> Iterator[Path]:
    """What the server shows as /data."""
    directory, state = place / "exported", place / "state"
    directory.mkdir()
    directory.chmod(0o777)
    state.mkdir()
    (place / "ganesha.conf").write_text(EXPORT.format(port=PORT, path=directory, state=state))
    command = [
        SERVER,
        "-F",
        "-f",
        place / "ganesha.conf",
        "-L",
        place / "ganesha.log",
        "-p",
        place / "ganesha.pid",
    ]
    server = subprocess.Popen(command)
    try:
        _wait(server, place / "ganesha.log")
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
def lacks() -> str:
    """What a mount needs and this machine has not. A client may be a module that nobody has asked for yet."""
    with suppress(OSError):
        subprocess.run(["modprobe", "nfs"], stderr=subprocess.DEVNULL, check=False)
    return nfs.lacking()


@pytest.fixture
def can_mount(lacks: str) -> None:
    if lacks:
        pytest.skip(f"a mount needs {lacks}")


@pytest.mark.slow
@pytest.mark.skipif(not SERVER, reason="nfs-ganesha and nfs-ganesha-vfs are not installed")
@pytest.mark.usefixtures("can_mount")
async def test_a_job_reads_and_writes_a_real_export(boxed_yard: Yard, exported: Path):
    (exported / "hello").write_text("from the server\n")
    writable = Mount("nfs://127.0.0.1/data", "/rw")
    readable = Mount("nfs://127.0.0.1/data", "/ro", read_only=True)
    script = "cat /rw/hello; echo kept > /rw/made; cat /ro/made; touch /ro/not || echo refused"
    try:
        end = await boxed_yard.run("sh", "-c", script, mounts=(writable, readable))
        assert boxed_yard.out(end.attempt) == "from the server\nkept\nrefused\n"
        assert (exported / "made").read_text() == "kept\n"
        assert not (exported / "not").exists()
    finally:
        for mounted in (boxed_yard.paths.keeper / "nfs").iterdir():
            subprocess.run(["umount", "-l", mounted], check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is let as far as the mount")
def test_what_a_machine_lacks_is_named(place: Path, lacks: str):
    with pytest.raises(Unsupported) as told:
        nfs.Mounts(place / "nfs").mount("nfs://127.0.0.1/x")  # nobody serves it
    assert str(told.value).startswith("nfs://127.0.0.1/x cannot be mounted: ")
    assert str(told.value).endswith(f"; it needs {lacks}") or not lacks
