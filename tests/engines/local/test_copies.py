"""Mounts in a real object store: fetched before the start, brought back while the program runs and at its end."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.engines.local.yard import Yard
from tests.stores import S3, s3
from turnout.job import Attempt, Cause, Launch, LogExport, Mount, Saved, to_uuid
from turnout.storage import Backing, Remote, Storage
from turnout.storage.remote import open_store

__all__ = ["s3"]

WRITE = 'cd "$TURNOUT_MOUNT_0"; '


class Corner(Yard):
    """A yard whose bucket `far` is a corner of the store."""

    def __init__(self, place: Path, sandbox: str, s3: S3) -> None:
        backing = msgspec.convert(s3.backing(), Backing)
        self._store = open_store(backing)
        storage = Storage(place / "data/buckets", [], place / "data", None, remote=Remote({"far": backing}))
        super().__init__(place, sandbox=sandbox, storage=storage)

    def put(self, key: str, data: bytes) -> None:
        self._store.put(key, data)

    def stored(self) -> dict[str, bytes]:
        names = [one["path"] for page in self._store.list() for one in page]
        return {name: bytes(self._store.get(name).bytes()) for name in names}

    async def go(self, launch: Launch) -> Attempt:
        await self.engine.start(launch)
        return launch.attempt

    async def saved(self, attempt: Attempt) -> Saved:
        await self.engine.save(attempt)
        found = await self.wait(lambda report: isinstance(report, Saved) and report.attempt == attempt)
        assert isinstance(found, Saved)
        return found

    async def until_stored(self, name: str, data: bytes) -> None:
        async with asyncio.timeout(30):
            while (await asyncio.to_thread(self.stored)).get(name) != data:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


@pytest.fixture(params=["none", "bubblewrap"])
async def corner(place: Path, s3: S3, request: pytest.FixtureRequest) -> AsyncIterator[Corner]:
    async with Corner(place, request.param, s3) as one:
        yield one


async def test_an_output_goes_while_the_program_runs_and_at_its_end(corner: Corner):
    corner.put("out/old", b"was there before")
    script = WRITE + "ls; echo early > early; echo ready; trap 'echo late > late' TERM; sleep 1000 & wait"
    mount = Mount("obs://far/out", "/out", fetch=False, period=0.2)
    attempt = await corner.go(corner.launch("sh", "-c", script, mounts=(mount,)))
    assert await corner.printed(attempt, "ready") == "ready\n"  # an output begins empty
    await corner.until_stored("out/early", b"early\n")
    assert "out/late" not in corner.stored()
    await corner.engine.stop(attempt, 5)
    await corner.ended(attempt)
    assert (await corner.saved(attempt)).trouble == ""
    assert corner.stored()["out/old"] == b"was there before"
    assert corner.stored()["out/late"] == b"late\n"


async def test_what_was_not_changed_does_not_go_again(corner: Corner):
    corner.put("both/a", b"a")
    corner.put("both/b", b"b")
    mount = Mount("obs://far/both", "/both")
    attempt = await corner.go(corner.launch("sh", "-c", WRITE + "echo c >> b", mounts=(mount,)))
    assert (await corner.ended(attempt)).code == 0
    assert (await corner.saved(attempt)).message == "1 file (3 bytes) went to obs://far/both"
    assert corner.stored() == {"both/a": b"a", "both/b": b"bc\n"}


async def test_an_input_must_be_there(corner: Corner):
    mount = Mount("obs://far/nothing/here", "/in", read_only=True)
    attempt = await corner.go(corner.launch("true", mounts=(mount,)))
    end = await corner.ended(attempt)
    assert end.cause is Cause.STAGING
    assert "obs://far/nothing/here" in end.message


async def test_an_input_cannot_be_changed_and_one_object_is_enough(corner: Corner):
    corner.put("in/x.txt", b"x")
    corner.put("in/x.txt.more", b"not this")
    mount = Mount("s3://far/in/x.txt", "/in", read_only=True)
    script = WRITE + "ls; cat x.txt; " + ("echo y > x.txt" if corner.sandbox == "bubblewrap" else "false")
    attempt = await corner.go(corner.launch("sh", "-c", script, mounts=(mount,)))
    assert (await corner.ended(attempt)).code != 0
    assert corner.out(attempt) == "x.txt\nx"
    assert corner.stored()["in/x.txt"] == b"x"


async def test_logs_go_there_too(corner: Corner):
    launch = corner.launch("sh", "-c", "echo one; sleep 0.05; echo two >&2; exec sleep 1000")
    logs = LogExport("obs://far/logs", "modelarts-job-{id}-{replica}.log", period=0.2)
    spec = msgspec.structs.replace(launch.spec, logs=logs)
    attempt = await corner.go(msgspec.structs.replace(launch, spec=spec))
    name = f"logs/modelarts-job-{to_uuid(attempt.job)}-master-0.log"
    await corner.until_stored(name, b"one\ntwo\n")
    await corner.engine.stop(attempt, 5)
    await corner.ended(attempt)
    assert (await corner.saved(attempt)).trouble == ""


async def test_one_that_is_stopped_while_its_data_comes_never_starts(corner: Corner):
    corner.put("in/x", bytes(30 << 20))
    mount = Mount("obs://far/in", "/in", read_only=True)
    attempt = await corner.go(corner.launch("true", mounts=(mount,)))
    await corner.engine.stop(attempt, 5)
    assert (await corner.ended(attempt)).cause is Cause.STOPPED
