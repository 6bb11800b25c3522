"""The supervisor survives a full disk: it continues, and writes later what it could not write before."""

import asyncio
import contextlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.local.harness import MASTER, EngineHarness
from turnout.job import Cause, Ended, Mount, Program, ReplicaName, Role

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small_disk disk")


@pytest.fixture
def small_disk(base_dir: Path) -> Iterator[Path]:
    """The data directory, on a file system of 16 MiB."""
    data = base_dir / "data"
    data.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m,nr_inodes=3000,mode=711", "tmpfs", data], check=True
    )
    try:
        yield data
    finally:
        subprocess.run(["umount", "-l", data], check=True)


def fill(disk: Path) -> Path:
    """Uses up all blocks and all inodes."""
    filler = disk / "filler"
    filler.mkdir()
    with (filler / "blocks").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    with contextlib.suppress(OSError):
        for number in itertools.count():
            (filler / str(number)).touch()
    return filler


@pytest.mark.parametrize("sandbox", ["none", "bubblewrap"])
async def test_the_supervisor_survives_a_full_disk(base_dir: Path, small_disk: Path, sandbox: str):
    steps = base_dir / "steps"
    steps.mkdir()
    async with EngineHarness(base_dir, sandbox=sandbox) as harness:
        script = "while [ ! -e go ]; do sleep 0.02; done; head -c 9000 /dev/zero > /dev/stderr; exit 9"
        mounts = (Mount(f"file://{steps}", "/data"),)
        running = await harness.start("sh", "-c", script, mounts=mounts)
        await harness.started(running)
        supervisor = harness.supervisor
        filler = fill(small_disk)
        gang = await harness.start(roles=(Role("master", Program(("true",)), replicas=100, leads=True),))
        ends = [await harness.ended(gang, ReplicaName("master", index)) for index in range(100)]
        assert Cause.STAGING in {end.cause for end in ends}
        (steps / "go").touch()
        ends.append(await harness.ended(running))
        assert harness.supervisor == supervisor
        assert os.path.exists(f"/proc/{supervisor}")
        shutil.rmtree(filler)
        journal = harness.paths.supervisor / "journal"
        async with asyncio.timeout(20):
            while journal.read_text().count('"ended"') < len(ends):  # noqa: ASYNC110 there is no event for it
                await asyncio.sleep(0.05)
        await harness.kill_supervisor()
        reported = {report for report in harness.reports if isinstance(report, Ended)}
        assert reported == set(ends)
        end = await harness.run("echo", "room again")
        assert (end.code, harness.output(end.attempt)) == (0, "room again\n")
        assert len(harness.engine.log(end.attempt, MASTER).marks()) == 1
        log = (harness.paths.supervisor / "log").read_text()
        assert log.count("the journal cannot be written: [Errno 28]") in (1, 2)
