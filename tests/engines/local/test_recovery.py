"""No job is lost or runs twice when the service, the supervisor or both are killed."""

import asyncio
import json
import os
import re
import resource
import shutil
import signal
from pathlib import Path

import pytest

from tests.engines.local.harness import (
    MASTER,
    EngineHarness,
    process_ended,
    running_processes,
    supervisor_ended,
)
from turnout import chaos
from turnout.engines.local.supervisor.messages import VERSION
from turnout.errors import Misconfigured
from turnout.job import (
    Attempt,
    Cause,
    Ended,
    Launch,
    Mount,
    Policy,
    Program,
    ReplicaName,
    Role,
    Started,
    Synced,
)
from turnout.runner.supervisor.procfs import boot_id


@pytest.fixture
def go_file(base_dir: Path) -> Path:
    """A file that a program waits for before it ends. It is in a mount, so that it is visible in the sandbox."""
    (base_dir / "go").mkdir()
    (base_dir / "go").chmod(0o777)
    return base_dir / "go" / "now"


async def start_waiting_job(harness: EngineHarness, go_file: Path) -> Attempt:
    script = "echo begin; while [ ! -e now ]; do sleep 0.02; done; echo end; exit 9"
    attempt = await harness.start("sh", "-c", script, mounts=(Mount(f"file://{go_file.parent}", "/data"),))
    await harness.wait_for_output(attempt, "begin")
    return attempt


async def test_jobs_continue_without_the_service(harness: EngineHarness, go_file: Path):
    attempt = await start_waiting_job(harness, go_file)
    started = await harness.started(attempt)
    await harness.disconnect()
    await harness.reconnect()
    assert await harness.started(attempt) == started
    go_file.touch()
    assert (await harness.ended(attempt)).code == 9
    assert harness.output(attempt) == "begin\nend\n"


async def test_an_end_without_the_service_is_reported_later(harness: EngineHarness, go_file: Path):
    attempt = await start_waiting_job(harness, go_file)
    pidfd = os.pidfd_open((await harness.started(attempt)).pid)
    await harness.disconnect()
    go_file.touch()
    await process_ended(pidfd)
    await harness.reconnect()
    end = await harness.ended(attempt)
    assert (end.cause, end.code) == (Cause.EXIT, 9)
    synced = next(report for report in harness.reports if isinstance(report, Synced))
    assert synced.held == {attempt}


async def test_a_forgotten_attempt_is_not_reported_again(harness: EngineHarness):
    end = await harness.run("true")
    await harness.engine.forget(end.attempt)
    await harness.disconnect()
    await harness.reconnect()
    assert [r for r in harness.reports if isinstance(r, Synced)] == [Synced(frozenset())]


async def test_addresses_and_ports_are_not_leased_twice_after_a_restart(unsandboxed: EngineHarness):
    first = await unsandboxed.start("sleep", "1000")
    address = (await unsandboxed.started(first)).address
    await unsandboxed.disconnect()
    await unsandboxed.reconnect()
    assert (await unsandboxed.started(first)).address == address
    gang = unsandboxed.engine._leases.lease(unsandboxed.launch("true"))
    taken = unsandboxed.engine._leases._leased[first]["master-0"]
    assert gang[0].address != taken[0]
    assert taken[1] not in gang[0].ports


async def test_a_time_limit_holds_without_the_service(harness: EngineHarness):
    attempt = await harness.start("sleep", "1000", policy=Policy(time_limit=0.5, grace=1))
    pidfd = os.pidfd_open((await harness.started(attempt)).pid)
    await harness.disconnect()
    await process_ended(pidfd)
    await harness.reconnect()
    assert (await harness.ended(attempt)).cause == Cause.TIME_LIMIT


async def test_a_new_supervisor_adopts_the_jobs_of_a_killed_one(harness: EngineHarness, go_file: Path):
    attempt = await start_waiting_job(harness, go_file)
    started = await harness.started(attempt)
    await harness.kill_supervisor()
    assert await harness.started(attempt) == started
    go_file.touch()
    end = await harness.ended(attempt)
    assert (end.cause, end.code) == (Cause.EXIT, 9), end
    assert harness.output(attempt) == "begin\nend\n"
    (*_, last) = harness.engine.log(attempt, MASTER).marks()
    assert last.stdout == len("begin\nend\n")


async def test_an_adopted_program_can_be_stopped_with_its_descendants(harness: EngineHarness, go_file: Path):
    attempt = await harness.start("sh", "-c", "(env -u X setsid sleep 2000.31 &); echo begin; sleep 2000.31")
    await harness.wait_for_output(attempt, "begin")
    await harness.kill_supervisor()
    await harness.engine.stop(attempt, 5)
    end = await harness.ended(attempt)
    assert (end.cause, end.signal) == (Cause.STOPPED, signal.SIGTERM)
    assert not running_processes("2000.31")


async def test_a_stop_continues_after_the_supervisor_is_killed(harness: EngineHarness):
    attempt = await harness.start("sh", "-c", "trap 'echo no' TERM; echo begin; while :; do sleep 0.01; done")
    await harness.wait_for_output(attempt, "begin")
    await harness.engine.stop(attempt, 1)
    await harness.wait_for_output(attempt, "no")
    await harness.kill_supervisor()
    end = await harness.ended(attempt)
    assert (end.cause, end.signal) == (Cause.STOPPED, signal.SIGKILL)


async def test_a_time_limit_holds_after_the_supervisor_is_killed(harness: EngineHarness):
    attempt = await harness.start("sleep", "1000", policy=Policy(time_limit=1, grace=1))
    await harness.started(attempt)
    await harness.kill_supervisor()
    assert (await harness.ended(attempt)).cause == Cause.TIME_LIMIT


async def test_jobs_survive_the_end_of_service_and_supervisor(harness: EngineHarness, go_file: Path):
    attempt = await start_waiting_job(harness, go_file)
    supervisor = os.pidfd_open(harness.supervisor)
    pid = harness.supervisor
    await harness.disconnect()
    os.kill(pid, signal.SIGKILL)
    await process_ended(supervisor)
    await harness.reconnect()
    go_file.touch()
    assert (await harness.ended(attempt)).code == 9
    assert harness.output(attempt) == "begin\nend\n"


async def test_an_end_without_a_supervisor_is_reported_later(harness: EngineHarness, go_file: Path):
    """The sandbox records the exit code. Without a sandbox it is lost, and the report says so."""
    attempt = await start_waiting_job(harness, go_file)
    pid, supervisor = (await harness.started(attempt)).pid, harness.supervisor
    main, pidfd = os.pidfd_open(pid), os.pidfd_open(supervisor)
    await harness.disconnect()
    os.kill(supervisor, signal.SIGKILL)
    await process_ended(pidfd)
    go_file.touch()
    await process_ended(main)
    await reaped(pid)
    await harness.reconnect()
    end = await harness.ended(attempt)
    if harness.sandbox == "bubblewrap":
        assert (end.cause, end.code) == (Cause.EXIT, 9)
    else:
        assert end.cause == Cause.LOST
        assert "exit record was lost" in end.message


NEVER_RAN = ("claimed", "moved_in", "prepared", "starting")


@pytest.mark.parametrize("point", [*NEVER_RAN, "spawned", "ending"])
async def test_a_supervisor_killed_at_any_point_starts_a_job_at_most_once(
    harness: EngineHarness, base_dir: Path, point: str, monkeypatch: pytest.MonkeyPatch
):
    """Its end is reported in any case, at worst as lost."""
    (base_dir / "count").mkdir()
    (base_dir / "count").chmod(0o777)
    await harness.disconnect()
    await supervisor_ended(harness)
    monkeypatch.setattr(chaos, "kill_at", f"supervisor.{point}")
    await harness.reconnect()
    monkeypatch.setattr(chaos, "kill_at", "")
    script = "echo x >> count; sleep 0.5; exit 4"
    harness.reports.clear()
    launch = harness.launch("sh", "-c", script, mounts=(Mount(f"file://{base_dir}/count", "/data"),))
    await harness.engine.start(launch)
    count = base_dir / "count" / "count"
    if point in NEVER_RAN:
        synced = await harness.wait(lambda report: isinstance(report, Synced))
        assert isinstance(synced, Synced)
        assert launch.attempt not in synced.held, "it never ran, so the controller may repeat the start"
        assert not harness.paths.replica(launch.attempt, MASTER).exists()
        await harness.engine.start(launch)
    end = await harness.ended(launch.attempt)
    assert count.read_text() == "x\n"
    assert end.code == 4 or end.cause == Cause.LOST
    if point != "ending" or harness.sandbox == "bubblewrap":
        assert (end.cause, end.code) == (Cause.EXIT, 4)


async def test_a_partly_started_gang_is_completed(
    harness: EngineHarness, base_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    """Running replicas continue. The others start once, at the addresses that the first ones know."""
    launch, names = await supervisor_killed_within_a_gang(harness, base_dir, monkeypatch)
    for _ in range(2):
        for name in names:
            await harness.engine.restart(launch, name, 0)
    for name in names:
        assert (await harness.ended(launch.attempt, name)).code == 5
    starts = (base_dir / "count" / "starts").read_text().splitlines()
    assert sorted(line.split()[0] for line in starts) == ["0", "1", "2"]
    assert len({line.split()[1] for line in starts}) == 1, "all have the same map of the gang"


async def test_a_partly_started_gang_can_be_stopped(
    harness: EngineHarness, base_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    launch, names = await supervisor_killed_within_a_gang(harness, base_dir, monkeypatch)
    await harness.engine.stop(launch.attempt, 0)
    assert {(await harness.ended(launch.attempt, name)).cause for name in names} == {Cause.STOPPED}
    starts = (base_dir / "count" / "starts").read_text().splitlines()
    assert [line.split()[0] for line in starts] == ["0"]


async def supervisor_killed_within_a_gang(
    harness: EngineHarness, base_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Launch, list[ReplicaName]]:
    """The supervisor is killed after the first of three has started. The programs wait for each other."""
    (base_dir / "count").mkdir()
    (base_dir / "count").chmod(0o777)
    await harness.disconnect()
    await supervisor_ended(harness)
    monkeypatch.setattr(chaos, "kill_at", "supervisor.spawned")
    await harness.reconnect()
    monkeypatch.setattr(chaos, "kill_at", "")
    harness.reports.clear()
    script = "echo $RANK $MASTER_ADDR:$MASTER_PORT >> starts; "
    script += "until [ $(wc -l < starts) = 3 ]; do sleep 0.02; done; exit 5"
    role = Role("master", Program(("sh", "-c", script)), replicas=3, leads=True)
    launch = harness.launch(roles=(role,), mounts=(Mount(f"file://{base_dir}/count", "/data"),))
    await harness.engine.start(launch)
    synced = await harness.wait(lambda report: isinstance(report, Synced))
    assert isinstance(synced, Synced)
    assert launch.attempt in synced.held
    await harness.started(launch.attempt)
    async with asyncio.timeout(20):
        while not (base_dir / "count" / "starts").exists():  # noqa: ASYNC110 there is no event for it
            await asyncio.sleep(0.02)
    assert not [report for report in harness.reports if isinstance(report, Ended)]
    return launch, [name for name, _ in launch.replicas()]


async def test_after_a_restart_of_the_machine_jobs_are_lost(unsandboxed: EngineHarness):
    """Simulated by a journal of another boot."""
    harness = unsandboxed
    attempt = await harness.start("sleep", "1000")
    ended = await harness.run("sh", "-c", "exit 2")
    started = await harness.started(attempt)
    await harness.disconnect()
    os.kill(harness.supervisor, signal.SIGKILL)
    await supervisor_ended(harness)
    os.kill(started.pid, signal.SIGKILL)
    await reaped(started.pid)
    journal = harness.paths.supervisor / "journal"
    lines = [json.loads(line) for line in journal.read_text().replace(boot_id(), "another").splitlines()]
    for line in lines:
        del line["c"]
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"started": ["torn')
    await harness.reconnect()
    end = await harness.ended(attempt)
    assert end.cause == Cause.LOST
    assert "machine restarted" in end.message
    assert (await harness.ended(ended.attempt)).code == 2
    assert (await harness.run("true")).code == 0


@pytest.mark.parametrize("damage", ["a pipe", "the box", "a log", "everything"])
async def test_a_damaged_directory_affects_only_its_own_replica(
    sandboxed: EngineHarness, go_file: Path, damage: str
):
    harness = sandboxed
    attempt = await start_waiting_job(harness, go_file)
    other = await start_waiting_job(harness, go_file)
    await harness.disconnect()
    os.kill(harness.supervisor, signal.SIGKILL)
    directory = harness.paths.replica(attempt, MASTER)
    if damage == "a pipe":
        (directory / "space/box/out/stdout").unlink()
    elif damage == "a log":
        (directory / "stdout").unlink()
        (directory / "stdout").mkdir()
    else:
        shutil.rmtree(directory / "space/box" if damage == "the box" else directory)
    await harness.reconnect()
    await harness.started(attempt)
    go_file.touch()
    assert (await harness.ended(other)).code == 9
    end = await harness.ended(attempt)
    # Bubblewrap continues to write to the file, which has no name any more.
    assert (end.cause, end.code) == (Cause.EXIT, 9)
    assert (await harness.run("true")).code == 0


async def test_senseless_lines_of_the_journal_are_skipped(harness: EngineHarness, go_file: Path):
    attempt = await start_waiting_job(harness, go_file)
    await harness.disconnect()
    os.kill(harness.supervisor, signal.SIGKILL)
    odd = ["[1,2]", "null", "7", '"boot"', "{}", '{"started":["nope"]}', '{"ended":5}', '{"claim":{"a":"9.1"}}',
           f'{{"ended":["{attempt}","master-0"]}}', f'{{"started":["{attempt}","other-0",1,1,1,1]}}',
           f'{{"stop":["{attempt}",["other-0"],"stopped",1]}}', '{"tomb":[]}', '{"new":["1.1"]}']  # fmt: skip
    with (harness.paths.supervisor / "journal").open("a") as journal:
        journal.write("".join(line + "\n" for line in odd))
    await harness.reconnect()
    await harness.started(attempt)
    go_file.touch()
    assert (await harness.ended(attempt)).code == 9
    log = (harness.paths.supervisor / "log").read_text()
    assert log.count("is malformed and is skipped") == len(odd)


async def test_a_warning_names_a_supervisor_that_cannot_be_reached(
    unsandboxed: EngineHarness, go_file: Path, caplog: pytest.LogCaptureFixture
):
    attempt = await start_waiting_job(unsandboxed, go_file)
    supervisor = unsandboxed.supervisor
    await unsandboxed.disconnect()
    (unsandboxed.paths.supervisor / "socket").unlink()
    back = asyncio.create_task(unsandboxed.reconnect())
    async with asyncio.timeout(20):
        while f"process {supervisor}" not in caplog.text:  # noqa: ASYNC110 there is no event for it
            await asyncio.sleep(0.02)
    assert "does not listen" in caplog.text
    go_file.touch()
    await back
    assert (await unsandboxed.ended(attempt)).code == 9


async def test_no_second_supervisor_starts_after_the_lock_file_was_removed(
    unsandboxed: EngineHarness, go_file: Path
):
    attempt = await start_waiting_job(unsandboxed, go_file)
    supervisor, log = unsandboxed.supervisor, unsandboxed.paths.supervisor / "log"
    await unsandboxed.disconnect()
    for name in ("lock", "socket"):
        (unsandboxed.paths.supervisor / name).unlink()
    back = asyncio.create_task(unsandboxed.reconnect())
    async with asyncio.timeout(20):
        while "another supervisor holds" not in log.read_text():  # noqa: ASYNC110 there is no event for it
            await asyncio.sleep(0.02)
    assert Path(f"/proc/{supervisor}").exists()
    go_file.touch()
    await back
    assert (await unsandboxed.ended(attempt)).code == 9


async def test_a_service_with_few_open_files_can_start_the_supervisor(unsandboxed: EngineHarness):
    await unsandboxed.disconnect()
    await supervisor_ended(unsandboxed)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        await unsandboxed.reconnect()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    end = await unsandboxed.run("sh", "-c", "ulimit -n")
    assert unsandboxed.output(end.attempt) == "4096\n", "the settings' own limit, not the service's"
    limits = Path(f"/proc/{unsandboxed.supervisor}/limits").read_text()
    assert re.search(rf"Max open files +{hard} +{hard}", limits)


async def test_no_start_is_lost_or_repeated_when_the_supervisor_is_killed_often(
    harness: EngineHarness, go_file: Path
):
    """Every exit code is right."""
    mounts = (Mount(f"file://{go_file.parent}", "/data"),)
    script = "echo $0 >> starts; while [ ! -e now ]; do sleep 0.05; done; exit $0"
    attempts = []
    for number in range(12):
        attempts.append(await harness.start("sh", "-c", script, str(number), mounts=mounts))
        if number % 4 == 3:
            for attempt in attempts:
                await harness.started(attempt)
            await harness.kill_supervisor()
    go_file.touch()
    for number, attempt in enumerate(attempts):
        end = await harness.ended(attempt)
        assert (end.cause, end.code) == (Cause.EXIT, number)
    starts = (go_file.parent / "starts").read_text().split()
    assert sorted(starts, key=int) == [str(number) for number in range(12)]


async def test_the_journal_is_compacted(unsandboxed: EngineHarness):
    running = await unsandboxed.start("sleep", "1000")
    command = Program(("true",))
    for _ in range(3):
        attempt = await unsandboxed.start(roles=(Role("master", command, replicas=200, leads=True),))
        for index in range(200):
            await unsandboxed.ended(attempt, ReplicaName("master", index))
        await unsandboxed.engine.forget(attempt)
    for _ in range(400):
        launch = unsandboxed.launch("true")
        await unsandboxed.engine.stop(launch.attempt, 0)
        await unsandboxed.engine.forget(launch.attempt)
    await unsandboxed.run("true")
    assert len((unsandboxed.paths.supervisor / "journal").read_text().splitlines()) < 2000
    await unsandboxed.disconnect()
    await unsandboxed.reconnect()
    assert await unsandboxed.started(running)
    assert not [
        report for report in unsandboxed.reports if isinstance(report, Ended) and report.attempt == running
    ]


async def test_a_supervisor_of_a_newer_version_is_left_alone(
    unsandboxed: EngineHarness, monkeypatch: pytest.MonkeyPatch
):
    await unsandboxed.start("sleep", "1000")
    await unsandboxed.disconnect()
    monkeypatch.setattr("turnout.engines.local.supervisor.messages.VERSION", VERSION - 1)
    with pytest.raises(Misconfigured, match="another version"):
        await unsandboxed.reconnect()
    monkeypatch.undo()
    await unsandboxed.reconnect()
    assert [report for report in unsandboxed.reports if isinstance(report, Started)]


async def reaped(pid: int) -> None:
    """Waits until the machine's init process has reaped the orphan."""
    async with asyncio.timeout(20):
        while Path(f"/proc/{pid}").exists():  # noqa: ASYNC110 there is no event for it
            await asyncio.sleep(0.02)
