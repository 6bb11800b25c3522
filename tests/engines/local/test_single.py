"""An input that is one object, not a directory: it lies in the mount under its own name, and is not copied."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engines.local.yard import Yard
from turnout.engines import Refused
from turnout.engines.local.account import job_user
from turnout.job import Mount
from turnout.storage import Storage


@pytest.fixture(params=["none", "bubblewrap"])
async def yard(place: Path, request: pytest.FixtureRequest) -> AsyncIterator[Yard]:
    place.joinpath("data").mkdir()
    place.joinpath("data").chmod(0o755)
    user = job_user("turnout-job")
    storage = Storage(
        place / "data/buckets", [], place / "data", (user.uid, user.gid) if user.other else None
    )
    writer = storage.embedded.writer("mine", "data/one.txt", "default")
    writer.write(b"just this\n")
    writer.commit()
    async with Yard(place, sandbox=request.param, storage=storage) as one:
        yield one


async def test_it_is_found_under_its_name(yard: Yard):
    mount = Mount("obs://mine/data/one.txt", "/in", read_only=True)
    attempt = await yard.start(
        "sh", "-c", "ls /in/; cat /in/one.txt" if boxed(yard) else CAT, mounts=(mount,)
    )
    assert (await yard.ended(attempt)).code == 0
    assert yard.out(attempt).split("\n") == ["one.txt", "just this", ""]
    copy = next(yard.paths.copies(attempt).glob("0/one.txt"))
    assert copy.samefile(yard.place / "data/buckets/mine/data/one.txt")


async def test_one_that_is_not_there_is_said(yard: Yard):
    mount = Mount("obs://mine/data/one.txt/below", "/in", read_only=True)
    with pytest.raises(Refused, match=r"one\.txt"):
        await yard.start("true", mounts=(mount,))


CAT = 'ls "$TURNOUT_MOUNT_0"; cat "$TURNOUT_MOUNT_0/one.txt"'


def boxed(yard: Yard) -> bool:
    return yard.sandbox == "bubblewrap"
