"""A full disk is waited out: the keeper goes on, and what it could not write down it writes down afterwards."""

import asyncio
import contextlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.local.yard import MASTER, Yard
from turnout.job import Cause, Ended, Mount, Program, ReplicaName, Role

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")


@pytest.fixture
def small(place: Path) -> Iterator[Path]:
    """The data directory, with a file system of 16 MiB of its own."""
    data = place / "data"
    data.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m,nr_inodes=3000,mode=711", "tmpfs", data], check=True
    )
    try:
        yield data
    finally:
        subprocess.run(["umount", "-l", data], check=True)


def fill(disk: Path) -> Path:
    """Neither a block nor a file is to be had afterwards."""
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
async def test_the_keeper_survives_a_full_disk(place: Path, small: Path, sandbox: str):
    steps = place / "steps"
    steps.mkdir()
    async with Yard(place, sandbox=sandbox) as yard:
        script = "while [ ! -e go ]; do sleep 0.02; done; head -c 9000 /dev/zero > /dev/stderr; exit 9"
        mounts = (Mount(f"file://{steps}", "/data"),)
        running = await yard.start("sh", "-c", script, mounts=mounts)
        await yard.started(running)
        keeper = yard.keeper
        filler = fill(small)
        gang = await yard.start(roles=(Role("master", Program(("true",)), replicas=100, leads=True),))
        ends = [await yard.ended(gang, ReplicaName("master", index)) for index in range(100)]
        assert Cause.STAGING in {end.cause for end in ends}
        (steps / "go").touch()
        ends.append(await yard.ended(running))
        assert yard.keeper == keeper
        assert os.path.exists(f"/proc/{keeper}")
        shutil.rmtree(filler)
        journal = yard.paths.keeper / "journal"
        async with asyncio.timeout(20):
            while journal.read_text().count('"ended"') < len(ends):  # noqa: ASYNC110 nobody tells of it
                await asyncio.sleep(0.05)
        await yard.kill_keeper()
        told = {report for report in yard.reports if isinstance(report, Ended)}
        assert told == set(ends)
        end = await yard.run("echo", "room again")
        assert (end.code, yard.out(end.attempt)) == (0, "room again\n")
        assert len(yard.engine.log(end.attempt, MASTER).marks()) == 1
        said = (yard.paths.keeper / "log").read_text()
        assert said.count("the journal cannot be written: [Errno 28]") in (1, 2)
