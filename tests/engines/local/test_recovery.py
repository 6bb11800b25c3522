"""Nothing is lost and nothing runs twice when the service, the keeper or both are killed."""

import asyncio
import json
import os
import re
import resource
import shutil
import signal
from pathlib import Path

import pytest

from tests.engines.local.yard import MASTER, Yard, alive
from turnout import chaos
from turnout.engines.local.link import VERSION
from turnout.errors import Misconfigured
from turnout.job import Attempt, Cause, Ended, Mount, Policy, Program, ReplicaName, Role, Started, Synced


@pytest.fixture
def go(place: Path) -> Path:
    """A file that a program waits for before it ends; it is in a mount, so the sandbox sees it too."""
    (place / "go").mkdir()
    (place / "go").chmod(0o777)
    return place / "go" / "now"


async def waiting(yard: Yard, go: Path) -> Attempt:
    script = "echo begin; while [ ! -e now ]; do sleep 0.02; done; echo end; exit 9"
    attempt = await yard.start("sh", "-c", script, mounts=(Mount(f"file://{go.parent}", "/data"),))
    await yard.printed(attempt, "begin")
    return attempt


async def test_what_ran_goes_on_while_the_service_is_away(yard: Yard, go: Path):
    attempt = await waiting(yard, go)
    started = await yard.started(attempt)
    await yard.leave()
    await yard.come_back()
    assert await yard.started(attempt) == started
    go.touch()
    assert (await yard.ended(attempt)).code == 9
    assert yard.out(attempt) == "begin\nend\n"


async def test_what_ended_while_the_service_was_away_is_told(yard: Yard, go: Path):
    attempt = await waiting(yard, go)
    pidfd = os.pidfd_open((await yard.started(attempt)).pid)
    await yard.leave()
    go.touch()
    await readable(pidfd)
    await yard.come_back()
    end = await yard.ended(attempt)
    assert (end.cause, end.code) == (Cause.EXIT, 9)
    synced = next(report for report in yard.reports if isinstance(report, Synced))
    assert synced.held == {attempt}


async def test_what_is_forgotten_is_not_told_again(yard: Yard):
    end = await yard.run("true")
    await yard.engine.forget(end.attempt)
    await yard.leave()
    await yard.come_back()
    assert [r for r in yard.reports if isinstance(r, Synced)] == [Synced(frozenset())]


async def test_addresses_and_ports_are_not_leased_twice_after_a_restart(bare_yard: Yard):
    first = await bare_yard.start("sleep", "1000")
    address = (await bare_yard.started(first)).address
    await bare_yard.leave()
    await bare_yard.come_back()
    assert (await bare_yard.started(first)).address == address
    gang = bare_yard.engine._leases.lease(bare_yard.launch("true"))
    taken = bare_yard.engine._leases._leased[first]["master-0"]
    assert gang[0].address != taken[0]
    assert taken[1] not in gang[0].ports


async def test_a_time_limit_holds_while_the_service_is_away(yard: Yard):
    attempt = await yard.start("sleep", "1000", policy=Policy(time_limit=0.5, grace=1))
    pidfd = os.pidfd_open((await yard.started(attempt)).pid)
    await yard.leave()
    await readable(pidfd)
    await yard.come_back()
    assert (await yard.ended(attempt)).cause == Cause.TIME_LIMIT


async def test_a_killed_keeper_is_started_again_and_adopts(yard: Yard, go: Path):
    attempt = await waiting(yard, go)
    started = await yard.started(attempt)
    await yard.kill_keeper()
    assert await yard.started(attempt) == started
    go.touch()
    end = await yard.ended(attempt)
    assert (end.cause, end.code) == (Cause.EXIT, 9), end
    assert yard.out(attempt) == "begin\nend\n"
    (*_, last) = yard.engine.log(attempt, MASTER).marks()
    assert last.stdout == len("begin\nend\n")


async def test_an_adopted_program_can_be_stopped_with_all_that_it_started(yard: Yard, go: Path):
    attempt = await yard.start("sh", "-c", "(env -u X setsid sleep 2000.31 &); echo begin; sleep 2000.31")
    await yard.printed(attempt, "begin")
    await yard.kill_keeper()
    await yard.engine.stop(attempt, 5)
    end = await yard.ended(attempt)
    assert (end.cause, end.signal) == (Cause.STOPPED, signal.SIGTERM)
    assert not alive("2000.31")


async def test_a_stop_goes_on_when_the_keeper_is_killed_in_the_middle(yard: Yard):
    attempt = await yard.start("sh", "-c", "trap 'echo no' TERM; echo begin; while :; do sleep 0.01; done")
    await yard.printed(attempt, "begin")
    await yard.engine.stop(attempt, 1)
    await yard.printed(attempt, "no")
    await yard.kill_keeper()
    end = await yard.ended(attempt)
    assert (end.cause, end.signal) == (Cause.STOPPED, signal.SIGKILL)


async def test_a_time_limit_holds_when_the_keeper_is_killed(yard: Yard):
    attempt = await yard.start("sleep", "1000", policy=Policy(time_limit=1, grace=1))
    await yard.started(attempt)
    await yard.kill_keeper()
    assert (await yard.ended(attempt)).cause == Cause.TIME_LIMIT


async def test_service_and_keeper_killed_at_once(yard: Yard, go: Path):
    attempt = await waiting(yard, go)
    keeper = os.pidfd_open(yard.keeper)
    pid = yard.keeper
    await yard.leave()
    os.kill(pid, signal.SIGKILL)
    await readable(keeper)
    await yard.come_back()
    go.touch()
    assert (await yard.ended(attempt)).code == 9
    assert yard.out(attempt) == "begin\nend\n"


async def test_what_ended_while_no_keeper_was_there(yard: Yard, go: Path):
    """The sandbox leaves a record of the exit code; without one it is lost, and that is said."""
    attempt = await waiting(yard, go)
    pid, keeper = (await yard.started(attempt)).pid, yard.keeper
    main, pidfd = os.pidfd_open(pid), os.pidfd_open(keeper)
    await yard.leave()
    os.kill(keeper, signal.SIGKILL)
    await readable(pidfd)
    go.touch()
    await readable(main)
    await reaped(pid)
    await yard.come_back()
    end = await yard.ended(attempt)
    if yard.sandbox == "bubblewrap":
        assert (end.cause, end.code) == (Cause.EXIT, 9)
    else:
        assert end.cause == Cause.LOST
        assert "exit record was lost" in end.message


@pytest.mark.parametrize("point", ["keeper.claimed", "keeper.spawned", "keeper.ending"])
async def test_killed_at(yard: Yard, place: Path, point: str, monkeypatch: pytest.MonkeyPatch):
    """It runs once or not at all, and its end is told: at worst that it is not known."""
    (place / "count").mkdir()
    (place / "count").chmod(0o777)
    await yard.leave()
    await gone(yard)
    monkeypatch.setattr(chaos, "kill_at", point)
    await yard.come_back()
    monkeypatch.setattr(chaos, "kill_at", "")
    script = "echo x >> count; sleep 0.5; exit 4"
    attempt = await yard.start("sh", "-c", script, mounts=(Mount(f"file://{place}/count", "/data"),))
    end = await yard.ended(attempt)
    count = place / "count" / "count"
    if point == "keeper.claimed":
        assert end.cause == Cause.LOST
        assert not count.exists()
        return
    assert count.read_text() == "x\n"
    assert end.code == 4 or end.cause == Cause.LOST
    if point == "keeper.spawned" or yard.sandbox == "bubblewrap":
        assert (end.cause, end.code) == (Cause.EXIT, 4)


async def test_after_a_restart_of_the_machine_everything_is_lost(bare_yard: Yard):
    """Played by a journal of another boot."""
    yard = bare_yard
    attempt = await yard.start("sleep", "1000")
    ended = await yard.run("sh", "-c", "exit 2")
    started = await yard.started(attempt)
    await yard.leave()
    os.kill(yard.keeper, signal.SIGKILL)
    journal = yard.paths.keeper / "journal"
    lines = journal.read_text().splitlines(keepends=True)
    lines[0] = json.dumps({"boot": "another"}) + "\n"
    journal.write_text("".join(lines) + '{"started": ["torn')
    await yard.come_back()
    end = await yard.ended(attempt)
    assert end.cause == Cause.LOST
    assert "machine restarted" in end.message
    assert (await yard.ended(ended.attempt)).code == 2
    os.kill(started.pid, signal.SIGKILL)
    assert (await yard.run("true")).code == 0


@pytest.mark.parametrize("damage", ["a pipe", "the box", "a log", "everything"])
async def test_a_directory_that_is_damaged_is_the_trouble_of_one_replica_only(
    boxed_yard: Yard, go: Path, damage: str
):
    yard = boxed_yard
    attempt = await waiting(yard, go)
    other = await waiting(yard, go)
    await yard.leave()
    os.kill(yard.keeper, signal.SIGKILL)
    directory = yard.paths.replica(attempt, MASTER)
    if damage == "a pipe":
        (directory / "box/out/stdout").unlink()
    elif damage == "a log":
        (directory / "stdout").unlink()
        (directory / "stdout").mkdir()
    else:
        shutil.rmtree(directory / "box" if damage == "the box" else directory)
    await yard.come_back()
    await yard.started(attempt)
    go.touch()
    assert (await yard.ended(other)).code == 9
    end = await yard.ended(attempt)
    # Bubblewrap goes on writing into a file that has no name any more.
    assert end.code == 9 if damage in ("a pipe", "a log") else end.cause == Cause.LOST
    assert (await yard.run("true")).code == 0


async def test_lines_of_the_journal_that_make_no_sense_are_skipped(yard: Yard, go: Path):
    attempt = await waiting(yard, go)
    await yard.leave()
    os.kill(yard.keeper, signal.SIGKILL)
    odd = ["[1,2]", "null", "7", '"boot"', "{}", '{"started":["nope"]}', '{"ended":5}', '{"claim":{"a":"9.1"}}',
           f'{{"ended":["{attempt}","master-0"]}}', f'{{"started":["{attempt}","other-0",1,1,1,1]}}',
           f'{{"stop":["{attempt}",["other-0"],"stopped",1]}}', '{"tomb":[]}', '{"new":["1.1"]}']  # fmt: skip
    with (yard.paths.keeper / "journal").open("a") as journal:
        journal.write("".join(line + "\n" for line in odd))
    await yard.come_back()
    await yard.started(attempt)
    go.touch()
    assert (await yard.ended(attempt)).code == 9
    said = (yard.paths.keeper / "log").read_text()
    assert said.count("makes no sense and is skipped") == len(odd)


async def test_a_keeper_that_cannot_be_reached_is_named(
    bare_yard: Yard, go: Path, caplog: pytest.LogCaptureFixture
):
    attempt = await waiting(bare_yard, go)
    keeper = bare_yard.keeper
    await bare_yard.leave()
    (bare_yard.paths.keeper / "socket").unlink()
    back = asyncio.create_task(bare_yard.come_back())
    async with asyncio.timeout(20):
        while f"process {keeper}" not in caplog.text:  # noqa: ASYNC110 nobody tells of it
            await asyncio.sleep(0.02)
    assert "does not listen" in caplog.text
    go.touch()
    await back
    assert (await bare_yard.ended(attempt)).code == 9


async def test_few_open_files_are_enough_to_start(bare_yard: Yard):
    await bare_yard.leave()
    await gone(bare_yard)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        await bare_yard.come_back()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    end = await bare_yard.run("sh", "-c", "ulimit -n")
    assert bare_yard.out(end.attempt) == "4096\n", "the settings' own limit, not the service's"
    limits = Path(f"/proc/{bare_yard.keeper}/limits").read_text()
    assert re.search(rf"Max open files +{hard} +{hard}", limits)


async def test_many_running_many_kills(yard: Yard, go: Path):
    """No start is lost, none is doubled, and every exit code is the true one."""
    mounts = (Mount(f"file://{go.parent}", "/data"),)
    script = "echo $0 >> starts; while [ ! -e now ]; do sleep 0.05; done; exit $0"
    attempts = []
    for number in range(12):
        attempts.append(await yard.start("sh", "-c", script, str(number), mounts=mounts))
        if number % 4 == 3:
            for attempt in attempts:
                await yard.started(attempt)
            await yard.kill_keeper()
    go.touch()
    for number, attempt in enumerate(attempts):
        end = await yard.ended(attempt)
        assert (end.cause, end.code) == (Cause.EXIT, number)
    starts = (go.parent / "starts").read_text().split()
    assert sorted(starts, key=int) == [str(number) for number in range(12)]


async def test_the_journal_is_compacted(bare_yard: Yard):
    running = await bare_yard.start("sleep", "1000")
    command = Program(("true",))
    for _ in range(3):
        attempt = await bare_yard.start(roles=(Role("master", command, replicas=200, leads=True),))
        for index in range(200):
            await bare_yard.ended(attempt, ReplicaName("master", index))
        await bare_yard.engine.forget(attempt)
    for _ in range(400):
        launch = bare_yard.launch("true")
        await bare_yard.engine.stop(launch.attempt, 0)
        await bare_yard.engine.forget(launch.attempt)
    await bare_yard.run("true")
    assert len((bare_yard.paths.keeper / "journal").read_text().splitlines()) < 2000
    await bare_yard.leave()
    await bare_yard.come_back()
    assert await bare_yard.started(running)
    assert not [
        report for report in bare_yard.reports if isinstance(report, Ended) and report.attempt == running
    ]


async def test_a_keeper_of_another_version_is_let_be(bare_yard: Yard, monkeypatch: pytest.MonkeyPatch):
    await bare_yard.start("sleep", "1000")
    await bare_yard.leave()
    monkeypatch.setattr("turnout.engines.local.link.VERSION", VERSION + 1)
    with pytest.raises(Misconfigured, match="another version"):
        await bare_yard.come_back()
    monkeypatch.undo()
    await bare_yard.come_back()
    assert [report for report in bare_yard.reports if isinstance(report, Started)]


async def readable(fd: int) -> None:
    """A pidfd is when its process has ended."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(fd, event.set)
    await asyncio.wait_for(event.wait(), 20)
    loop.remove_reader(fd)
    os.close(fd)


async def reaped(pid: int) -> None:
    """The machine's first process takes its time to reap an orphan."""
    async with asyncio.timeout(20):
        while Path(f"/proc/{pid}").exists():  # noqa: ASYNC110 nobody tells of it
            await asyncio.sleep(0.02)


async def gone(yard: Yard) -> None:
    pid = yard.keeper
    try:
        await readable(os.pidfd_open(pid))
    except ProcessLookupError:
        return
