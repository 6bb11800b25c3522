"""An input that is one object: it is in the mount under its own name, and is not copied."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engines.local.harness import EngineHarness, accounts_in, owners
from turnout.job import Cause, Mount
from turnout.storage import Storage


@pytest.fixture(params=["none", "bubblewrap"])
async def harness(base_dir: Path, request: pytest.FixtureRequest) -> AsyncIterator[EngineHarness]:
    users = accounts_in(base_dir)
    storage = Storage(base_dir / "data/buckets", [], base_dir / "data", owners(users))
    writer = storage.embedded.writer("mine", "data/one.txt", "default")
    writer.write(b"just this\n")
    writer.commit()
    async with EngineHarness(base_dir, sandbox=request.param, storage=storage, accounts=users) as one:
        yield one


async def test_an_object_has_its_own_name_in_the_mount(harness: EngineHarness):
    mount = Mount("obs://mine/data/one.txt", "/in", read_only=True)
    attempt = await harness.start(
        "sh", "-c", "ls /in/; cat /in/one.txt" if is_sandboxed(harness) else CAT, mounts=(mount,)
    )
    assert (await harness.ended(attempt)).code == 0
    assert harness.output(attempt).split("\n") == ["one.txt", "just this", ""]
    copy = next(harness.paths.copies(attempt).glob("0/one.txt"))
    assert copy.samefile(harness.base_dir / "data/buckets/mine/data/one.txt")


async def test_a_missing_object_is_an_error(harness: EngineHarness):
    mount = Mount("obs://mine/data/one.txt/below", "/in", read_only=True)
    end = await harness.run("true", mounts=(mount,))
    assert (end.cause, end.message) == (Cause.STAGING, "there is nothing at 'obs://mine/data/one.txt/below'")


CAT = 'ls "$TURNOUT_MOUNT_0"; cat "$TURNOUT_MOUNT_0/one.txt"'


def is_sandboxed(harness: EngineHarness) -> bool:
    return harness.sandbox == "bubblewrap"
