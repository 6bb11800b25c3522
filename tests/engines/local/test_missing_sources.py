"""Mounts at whose source there is nothing when the job starts, or starts again."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines.local.harness import MASTER, EngineHarness, accounts_in, owners
from turnout.job import Cause, Ended, Launch, Mount
from turnout.storage import Storage


@pytest.fixture
async def here(base_dir: Path) -> AsyncIterator[EngineHarness]:
    users = accounts_in(base_dir)
    data = base_dir / "data"
    (base_dir / "host").mkdir()
    storage = Storage(data / "buckets", [(base_dir / "host", True)], data, owners(users))
    async with EngineHarness(base_dir, sandbox="none", storage=storage, accounts=users) as harness:
        yield harness


async def ended(harness: EngineHarness, launch: Launch, restarts: int) -> Ended:
    wanted = launch.attempt, MASTER, restarts
    found = await harness.wait(
        lambda r: isinstance(r, Ended) and (r.attempt, r.replica, r.restarts) == wanted
    )
    assert isinstance(found, Ended)
    return found


@pytest.mark.parametrize("flags", [{"read_only": True}, {"package": True}])
async def test_the_job_fails_with_the_name_and_nothing_is_made(here: EngineHarness, flags: dict[str, Any]):
    end = await here.run("true", mounts=(Mount("cos://typo/dir", "/m", **flags),))
    assert end.cause is Cause.STAGING
    assert end.message == "'cos://typo/dir' does not exist: there is no such bucket"
    assert not (here.paths.buckets / "typo").exists()


@pytest.mark.parametrize("source", ["cos://code", "file://{base_dir}/host"])
async def test_a_file_that_is_gone_is_named(here: EngineHarness, base_dir: Path, source: str):
    (here.paths.buckets / "code").mkdir(parents=True)
    (here.paths.buckets / "code" / "other.py").write_text("")
    source = source.format(base_dir=base_dir)
    end = await here.run("true", mounts=(Mount(source, "/m", read_only=True, files=("train.py",)),))
    assert end.cause is Cause.STAGING
    assert end.message == f"there is no file '{source}/train.py'"


async def test_a_replica_that_starts_again_finds_what_it_wrote_to_a_bucket_that_did_not_exist(
    here: EngineHarness,
):
    """Even if somebody has made the bucket since, in which the files are not yet."""
    script = "cd $TURNOUT_MOUNT_0; [ -e left ] && exit 3; echo 1 > left; kill -9 $$"
    launch = here.launch("sh", "-c", script, mounts=(Mount("cos://later", "/m"),))
    await here.engine.start(launch)
    assert (await ended(here, launch, 0)).signal == 9
    assert not (here.paths.buckets / "later").exists()
    (here.paths.buckets / "later").mkdir(parents=True, exist_ok=True)
    await here.engine.restart(launch, MASTER, 1)
    assert (await ended(here, launch, 1)).code == 3


async def test_an_input_that_is_gone_when_a_replica_starts_again(here: EngineHarness):
    (here.paths.buckets / "data").mkdir(parents=True)
    (here.paths.buckets / "data" / "x").write_text("")
    launch = here.launch("sh", "-c", "kill -9 $$", mounts=(Mount("cos://data", "/m", read_only=True),))
    await here.engine.start(launch)
    await ended(here, launch, 0)
    (here.paths.buckets / "data" / "x").unlink()
    await here.engine.restart(launch, MASTER, 1)
    end = await ended(here, launch, 1)
    assert (end.cause, end.message) == (Cause.STAGING, "there is nothing at 'cos://data'")
