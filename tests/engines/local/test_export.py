"""Logs as files in a directory that the job's owner names."""

import asyncio

import msgspec

from tests.engines.local.yard import Yard
from turnout.job import Attempt, LogExport, Saved, to_uuid


async def start(yard: Yard, script: str, to: str, period: float = 0) -> Attempt:
    launch = yard.launch("sh", "-c", script)
    logs = LogExport(to, "modelarts-job-{id}-{replica}.log", period)
    spec = msgspec.structs.replace(launch.spec, logs=logs)
    await yard.engine.start(msgspec.structs.replace(launch, spec=spec))
    return launch.attempt


async def saved(yard: Yard, attempt: Attempt) -> Saved:
    await yard.engine.save(attempt)
    found = await yard.wait(lambda report: isinstance(report, Saved) and report.attempt == attempt)
    assert isinstance(found, Saved)
    return found


async def test_both_streams_are_in_it_in_the_order_of_time(yard: Yard):
    to = yard.place / "logs"
    to.mkdir()
    script = "echo one; sleep 0.1; echo two >&2; sleep 0.1; echo three"
    attempt = await start(yard, script, f"file://{to}")
    await yard.ended(attempt)
    assert (await saved(yard, attempt)).trouble == ""
    [file] = to.iterdir()
    assert file.name == f"modelarts-job-{to_uuid(attempt.job)}-master-0.log"
    assert file.read_text() == "one\ntwo\nthree\n"


async def test_it_grows_while_the_job_runs_and_goes_on_after_a_restart(bare_yard: Yard):
    yard = bare_yard
    to = yard.place / "logs"
    to.mkdir()
    go = yard.place / "go"
    script = f"echo one; until [ -e {go} ]; do sleep 0.02; done; echo two"
    attempt = await start(yard, script, f"file://{to}", period=0.05)
    file = to / f"modelarts-job-{to_uuid(attempt.job)}-master-0.log"
    while not file.exists() or file.read_text() != "one\n":  # noqa: ASYNC110 nobody tells of it
        await asyncio.sleep(0.01)
    await yard.leave()
    await yard.come_back()
    go.touch()
    await yard.ended(attempt)
    assert (await saved(yard, attempt)).trouble == ""
    assert file.read_text() == "one\ntwo\n"


async def test_a_link_in_its_place_is_not_followed(yard: Yard):
    to = yard.place / "logs"
    to.mkdir()
    treasure = yard.place / "treasure"
    treasure.write_text("untouched")
    attempt = await start(yard, "echo one", f"file://{to}")
    (to / f"modelarts-job-{to_uuid(attempt.job)}-master-0.log").symlink_to(treasure)
    await yard.ended(attempt)
    assert "log" in (await saved(yard, attempt)).trouble
    assert treasure.read_text() == "untouched"
