"""Mounts in a real object store: fetched before the start, uploaded while the program runs and at its end."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.engines.local.harness import EngineHarness
from tests.stores import S3, s3
from turnout.job import Attempt, Cause, Launch, LogExport, Mount, Saved, to_uuid
from turnout.storage import RemoteBuckets, RemoteSettings, Storage
from turnout.storage.remote.store import open_store

__all__ = ["s3"]

WRITE = 'cd "$TURNOUT_MOUNT_0"; '


class RemoteHarness(EngineHarness):
    """A harness whose bucket `far` is a prefix in the store."""

    def __init__(self, base_dir: Path, sandbox: str, s3: S3) -> None:
        backing = msgspec.convert(s3.backing(), RemoteSettings)
        self._store = open_store(backing)
        storage = Storage(
            base_dir / "data/buckets", [], base_dir / "data", None, remote=RemoteBuckets({"far": backing})
        )
        super().__init__(base_dir, sandbox=sandbox, storage=storage)

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
async def remote(base_dir: Path, s3: S3, request: pytest.FixtureRequest) -> AsyncIterator[RemoteHarness]:
    async with RemoteHarness(base_dir, request.param, s3) as one:
        yield one


async def test_an_output_is_uploaded_while_the_program_runs_and_at_its_end(remote: RemoteHarness):
    remote.put("out/old", b"was there before")
    script = WRITE + "ls; echo early > early; echo ready; trap 'echo late > late' TERM; sleep 1000 & wait"
    mount = Mount("obs://far/out", "/out", fetch=False, period=0.2)
    attempt = await remote.go(remote.launch("sh", "-c", script, mounts=(mount,)))
    assert await remote.wait_for_output(attempt, "ready") == "ready\n"  # an output starts empty
    await remote.until_stored("out/early", b"early\n")
    assert "out/late" not in remote.stored()
    await remote.engine.stop(attempt, 5)
    await remote.ended(attempt)
    assert (await remote.saved(attempt)).trouble == ""
    assert remote.stored()["out/old"] == b"was there before"
    assert remote.stored()["out/late"] == b"late\n"


async def test_other_users_of_the_machine_cannot_read_copies(remote: RemoteHarness):
    remote.put("in/a", b"a")
    mounts = (Mount("obs://far/in", "/in", read_only=True), Mount("obs://far/out", "/out"))
    launch = remote.launch(
        "sh", "-c", 'cat "$TURNOUT_MOUNT_0/a"; echo ready; sleep 1000', mounts=mounts, project="a"
    )
    logs = LogExport("obs://far/logs", "{replica}.log", 0.05)
    attempt = await remote.go(
        msgspec.structs.replace(launch, spec=msgspec.structs.replace(launch.spec, logs=logs))
    )
    await remote.wait_for_output(attempt, "ready")
    await remote.until_stored("logs/master-0.log", b"aready\n")
    here = remote.paths.copies(attempt)
    user = remote.accounts.of("a")
    for base_dir in (here, remote.paths.exported(attempt)):
        assert base_dir.stat().st_mode & 0o007 == 0
        assert base_dir.stat().st_gid == user.gid
        # The job cannot replace the directories that the service made.
        assert base_dir.stat().st_uid == os.geteuid()
    assert {(path.stat().st_uid, path.stat().st_gid) for path in here.iterdir()} == {(user.uid, user.gid)}
    for above in (remote.paths.all_copies, remote.paths.all_exported):
        assert above.stat().st_mode & 0o066 == 0


async def test_unchanged_files_are_not_uploaded(remote: RemoteHarness):
    remote.put("both/a", b"a")
    remote.put("both/b", b"b")
    mount = Mount("obs://far/both", "/both")
    attempt = await remote.go(remote.launch("sh", "-c", WRITE + "echo c >> b", mounts=(mount,)))
    assert (await remote.ended(attempt)).code == 0
    assert (await remote.saved(attempt)).message == "1 file (3 bytes) went to obs://far/both"
    assert remote.stored() == {"both/a": b"a", "both/b": b"bc\n"}


async def test_what_is_not_saved_is_named(remote: RemoteHarness):
    mount = Mount("obs://far/out", "/out", fetch=False)
    script = WRITE + "echo 1 > a; ln -s a link; mkfifo pipe"
    attempt = await remote.go(remote.launch("sh", "-c", script, mounts=(mount,)))
    assert (await remote.ended(attempt)).code == 0
    first, *skipped = (await remote.saved(attempt)).message.split("; ")
    assert first == "1 file (2 bytes) went to obs://far/out"
    assert sorted(skipped) == ["link is skipped: it is a symbolic link", "pipe is skipped: it is a pipe"]


async def test_a_missing_input_is_an_error(remote: RemoteHarness):
    mount = Mount("obs://far/nothing/here", "/in", read_only=True)
    attempt = await remote.go(remote.launch("true", mounts=(mount,)))
    end = await remote.ended(attempt)
    assert end.cause is Cause.STAGING
    assert "obs://far/nothing/here" in end.message


async def test_an_input_is_read_only_and_can_be_one_object(remote: RemoteHarness):
    remote.put("in/x.txt", b"x")
    remote.put("in/x.txt.more", b"not this")
    mount = Mount("s3://far/in/x.txt", "/in", read_only=True)
    script = WRITE + "ls; cat x.txt; " + ("echo y > x.txt" if remote.sandbox == "bubblewrap" else "false")
    attempt = await remote.go(remote.launch("sh", "-c", script, mounts=(mount,)))
    assert (await remote.ended(attempt)).code != 0
    assert remote.output(attempt) == "x.txt\nx"
    assert remote.stored()["in/x.txt"] == b"x"


async def test_logs_are_uploaded(remote: RemoteHarness):
    launch = remote.launch("sh", "-c", "echo one; sleep 0.05; echo two >&2; exec sleep 1000")
    logs = LogExport("obs://far/logs", "modelarts-job-{id}-{replica}.log", period=0.2)
    spec = msgspec.structs.replace(launch.spec, logs=logs)
    attempt = await remote.go(msgspec.structs.replace(launch, spec=spec))
    name = f"logs/modelarts-job-{to_uuid(attempt.job)}-master-0.log"
    await remote.until_stored(name, b"one\ntwo\n")
    await remote.engine.stop(attempt, 5)
    await remote.ended(attempt)
    assert (await remote.saved(attempt)).trouble == ""


async def test_a_job_that_is_stopped_during_its_download_never_starts(remote: RemoteHarness):
    remote.put("in/x", bytes(30 << 20))
    mount = Mount("obs://far/in", "/in", read_only=True)
    attempt = await remote.go(remote.launch("true", mounts=(mount,)))
    await remote.engine.stop(attempt, 5)
    assert (await remote.ended(attempt)).cause is Cause.STOPPED
