"""A directory that nodes share, and that is full: the runner comes another way, and programs get the error."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import Service, running
from tests.slurm.daemons import Slurm
from tests.slurm.harness import Bench, role
from tests.slurm.test_service import CLUSTER, ended, lines, submit
from turnout.engines.remote import EndKind
from turnout.job import ReplicaName

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SETTINGS = """
[clusters.{cluster}]
engine = "slurm"
python = "/usr/bin/python3"
shared = ["{shared}"]
runner_directory = "{shared}/runners"

[runner]
url = "{url}"
"""


@pytest.fixture
def shared(place: Path) -> Iterator[Path]:
    """A file system of 64 KiB and a few files."""
    directory = place / "shared"
    directory.mkdir()
    options = ["-o", "size=64k,nr_inodes=6,mode=0777"]
    subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", str(directory)], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)
        directory.rmdir()


def fill(directory: Path) -> None:
    """No byte fits any more, and no file."""
    with contextlib.suppress(OSError), (directory / "large").open("wb", 0) as file:
        while True:
            file.write(bytes(4096))
    with contextlib.suppress(OSError):
        for number in range(100):
            (directory / f"small-{number}").touch()
    found = os.statvfs(directory)
    assert (found.f_bavail, found.f_favail) == (0, 0)


def empty(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()


@pytest.fixture
def service(slurm: Slurm, shared: Path) -> Iterator[Service]:
    with running(env={"SLURM_CONF": slurm.environment["SLURM_CONF"]}) as one:
        url = f"http://{slurm.address}:{one.port}"
        one.config.write_text(SETTINGS.format(cluster=CLUSTER, shared=shared, url=url))
        yield one.start("--host", "0.0.0.0")


def test_jobs_of_a_cluster_whose_shared_directory_is_full(service: Service, shared: Path):
    fill(shared)
    program = f"echo up; echo data > {shared}/result || exit 9"
    submit(service, "full", "sh", "-c", program)
    job = ended(service, "full")
    assert job["replicas"][0]["exit_code"] == 9, job
    assert lines(service, "full")[0] == "up"
    empty(shared)
    submit(service, "roomy", "sh", "-c", program)
    job = ended(service, "roomy")
    assert job["state"] == "succeeded", job
    assert (shared / "result").read_text() == "data\n"


async def test_what_runners_print_has_no_place(lab: Bench, shared: Path):
    """It comes by the job's comment, as it does if nothing is shared."""
    (lab.directory / "cluster").symlink_to(shared)
    full = lab.with_settings(shared=(str(lab.directory),))
    await full.cluster.open()
    fill(shared)
    full.program("print('I am', name)\nraise SystemExit(3)")
    handle = await full.cluster.submit(full.gang(role("worker", 2)))
    await full.all_started("worker-0", "worker-1")
    assert (await full.ended(handle)).end is EndKind.EXITED
    assert "I am worker-1" in await full.cluster.last_words(handle, ReplicaName("worker", 1))
