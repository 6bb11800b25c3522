"""Logs are exported as files to a directory that the job names."""

import asyncio

import msgspec

from tests.engines.local.harness import EngineHarness
from turnout.job import Attempt, LogExport, Saved, to_uuid


async def start(harness: EngineHarness, script: str, to: str, period: float = 0) -> Attempt:
    launch = harness.launch("sh", "-c", script)
    logs = LogExport(to, "modelarts-job-{id}-{replica}.log", period)
    spec = msgspec.structs.replace(launch.spec, logs=logs)
    await harness.engine.start(msgspec.structs.replace(launch, spec=spec))
    return launch.attempt


async def wait_for_saved(harness: EngineHarness, attempt: Attempt) -> Saved:
    await harness.engine.save(attempt)
    found = await harness.wait(lambda report: isinstance(report, Saved) and report.attempt == attempt)
    assert isinstance(found, Saved)
    return found


async def test_an_exported_log_has_both_streams_in_order_of_time(harness: EngineHarness):
    to = harness.base_dir / "logs"
    to.mkdir()
    script = "echo one; sleep 1; echo two >&2; sleep 1; echo three"
    attempt = await start(harness, script, f"file://{to}")
    await harness.ended(attempt)
    assert (await wait_for_saved(harness, attempt)).trouble == ""
    [file] = to.iterdir()
    assert file.name == f"modelarts-job-{to_uuid(attempt.job)}-master-0.log"
    assert file.read_text() == "one\ntwo\nthree\n"


async def test_an_exported_log_grows_while_the_job_runs_and_after_a_restart(unsandboxed: EngineHarness):
    harness = unsandboxed
    to = harness.base_dir / "logs"
    to.mkdir()
    go = harness.base_dir / "go"
    script = f"echo one; until [ -e {go} ]; do sleep 0.02; done; echo two"
    attempt = await start(harness, script, f"file://{to}", period=0.05)
    file = to / f"modelarts-job-{to_uuid(attempt.job)}-master-0.log"
    while not file.exists() or file.read_text() != "one\n":  # noqa: ASYNC110 there is no event for it
        await asyncio.sleep(0.01)
    await harness.disconnect()
    await harness.reconnect()
    go.touch()
    await harness.ended(attempt)
    assert (await wait_for_saved(harness, attempt)).trouble == ""
    assert file.read_text() == "one\ntwo\n"


async def test_a_link_in_place_of_an_exported_log_is_not_followed(harness: EngineHarness):
    to = harness.base_dir / "logs"
    to.mkdir()
    treasure = harness.base_dir / "treasure"
    treasure.write_text("untouched")
    attempt = await start(harness, "echo one", f"file://{to}")
    (to / f"modelarts-job-{to_uuid(attempt.job)}-master-0.log").symlink_to(treasure)
    await harness.ended(attempt)
    assert "log" in (await wait_for_saved(harness, attempt)).trouble
    assert treasure.read_text() == "untouched"
