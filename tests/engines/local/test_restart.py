"""A replica that has ended is started again in its place, once for each time that it is asked for."""

import os
import signal
from pathlib import Path

import pytest

from tests.engines.local.test_recovery import gone
from tests.engines.local.yard import MASTER, Yard
from turnout import chaos
from turnout.job import Cause, Ended, Launch, Mount, Policy, Program, ReplicaName, Role, Started, Synced
from turnout.vault import KeyRing

WORKER = ReplicaName("worker", 0)
KEY = "projects/p/locations/l/keyRings/r/cryptoKeys/k"


async def started(yard: Yard, launch: Launch, restarts: int, name: ReplicaName = MASTER) -> Started:
    wanted = launch.attempt, name, restarts
    found = await yard.wait(lambda r: isinstance(r, Started) and (r.attempt, r.replica, r.restarts) == wanted)
    assert isinstance(found, Started)
    return found


async def ended(yard: Yard, launch: Launch, restarts: int, name: ReplicaName = MASTER) -> Ended:
    wanted = launch.attempt, name, restarts
    found = await yard.wait(lambda r: isinstance(r, Ended) and (r.attempt, r.replica, r.restarts) == wanted)
    assert isinstance(found, Ended)
    return found


@pytest.fixture
def count(place: Path) -> Path:
    """A directory that jobs can write to."""
    directory = place / "count"
    directory.mkdir()
    directory.chmod(0o777)
    return directory


def counting(yard: Yard, count: Path, script: str, **details: object) -> Launch:
    """`$n` says how often it has been started."""
    counted = "echo x >> $TURNOUT_MOUNT_0/count; n=$(wc -l < $TURNOUT_MOUNT_0/count); echo start $n; "
    return yard.launch("sh", "-c", counted + script, mounts=(Mount(f"file://{count}", "/data"),), **details)  # type: ignore[arg-type]


def starts(count: Path) -> int:
    return len((count / "count").read_text().split())


async def test_it_has_its_name_address_ports_files_and_log_again(yard: Yard):
    script = (
        'echo "$HOSTNAME $MASTER_ADDR:$MASTER_PORT $TF_CONFIG"; if [ -e $HOME/left ]; then exit 3; fi; '
        "touch $HOME/left; kill -9 $$"
    )
    launch = yard.launch("sh", "-c", script)
    await yard.engine.start(launch)
    first = await ended(yard, launch, 0)
    assert (first.cause, first.signal) == (Cause.EXIT, 9)
    await yard.engine.restart(launch, MASTER, 1)
    second = await ended(yard, launch, 1)
    assert (second.cause, second.code) == (Cause.EXIT, 3)
    one, other = yard.out(launch.attempt).splitlines()
    assert one == other
    assert (await started(yard, launch, 1)).address == (await started(yard, launch, 0)).address


async def test_the_others_go_on(yard: Yard, count: Path):
    asleep = Program(("sleep", "1000"))
    roles = (Role("master", asleep, leads=True), Role("worker", asleep, 1))
    launch = yard.launch(roles=roles)
    await yard.engine.start(launch)
    master, worker = await started(yard, launch, 0), await started(yard, launch, 0, WORKER)
    os.kill(worker.pid, signal.SIGKILL)
    await ended(yard, launch, 0, WORKER)
    await yard.engine.restart(launch, WORKER, 1)
    assert (await started(yard, launch, 1, WORKER)).pid != worker.pid
    assert os.path.exists(f"/proc/{master.pid}")
    await yard.engine.stop(launch.attempt, 0)
    for name, restarts in ((MASTER, 0), (WORKER, 1)):
        assert (await ended(yard, launch, restarts, name)).cause == Cause.STOPPED


async def test_asked_twice_it_starts_once(yard: Yard, count: Path):
    launch = counting(yard, count, "if [ $n -gt 1 ]; then sleep 0.3; exit 0; fi; kill -9 $$")
    await yard.engine.start(launch)
    await ended(yard, launch, 0)
    for _ in range(3):
        await yard.engine.restart(launch, MASTER, 1)
    assert (await ended(yard, launch, 1)).code == 0
    await yard.engine.restart(launch, MASTER, 1)
    await yard.run("true")
    assert starts(count) == 2


async def test_a_time_limit_counts_from_the_first_start(yard: Yard, count: Path):
    script = "if [ $n -gt 1 ]; then sleep 1000; fi; sleep 1; kill -9 $$"
    launch = counting(yard, count, script, policy=Policy(time_limit=2, grace=1))
    await yard.engine.start(launch)
    await ended(yard, launch, 0)
    await yard.engine.restart(launch, MASTER, 1)
    end = await ended(yard, launch, 1)
    assert end.cause == Cause.TIME_LIMIT
    begun, again = await started(yard, launch, 0), await started(yard, launch, 1)
    assert end.at - begun.at >= 2e9 > end.at - again.at


async def test_the_next_service_and_the_next_keeper_know_which_start_it_is(yard: Yard, count: Path):
    launch = counting(yard, count, "if [ $n -gt 1 ]; then sleep 1000; fi; kill -9 $$")
    await yard.engine.start(launch)
    await ended(yard, launch, 0)
    await yard.engine.restart(launch, MASTER, 1)
    again = await started(yard, launch, 1)
    await yard.leave()
    await yard.come_back()
    assert await started(yard, launch, 1) == again
    await yard.kill_keeper()
    assert await started(yard, launch, 1) == again
    await yard.engine.restart(launch, MASTER, 1)
    await yard.engine.stop(launch.attempt, 0)
    assert (await ended(yard, launch, 1)).cause == Cause.STOPPED
    assert starts(count) == 2


@pytest.mark.parametrize("point", ["keeper.again", "keeper.respawned"])
async def test_a_keeper_killed_in_the_middle(
    yard: Yard, count: Path, point: str, monkeypatch: pytest.MonkeyPatch
):
    """It has started or it has not: what does not run is asked for again, and nothing runs twice."""
    await yard.leave()
    await gone(yard)
    monkeypatch.setattr(chaos, "kill_at", point)
    await yard.come_back()
    monkeypatch.setattr(chaos, "kill_at", "")
    launch = counting(yard, count, "if [ $n -gt 1 ]; then sleep 1000; fi; kill -9 $$")
    await yard.engine.start(launch)
    await ended(yard, launch, 0)
    yard.reports.clear()
    await yard.engine.restart(launch, MASTER, 1)
    await yard.wait(lambda report: isinstance(report, Synced))
    told = {report.restarts for report in yard.reports if isinstance(report, Started)}
    assert told == ({0} if point == "keeper.again" else {0, 1})
    await yard.engine.restart(launch, MASTER, 1)
    await started(yard, launch, 1)
    await yard.printed(launch.attempt, "start 2")
    await yard.run("true")
    assert starts(count) == 2
    await yard.engine.stop(launch.attempt, 0)
    assert (await ended(yard, launch, 1)).cause == Cause.STOPPED


@pytest.mark.parametrize("sandbox", ["none", "bubblewrap"])
async def test_a_sealed_log_goes_on_too(place: Path, tmp_path: Path, sandbox: str):
    (tmp_path / "key").write_bytes(b"\1" * 32)
    async with Yard(place, sandbox=sandbox, ring=KeyRing({KEY: str(tmp_path / "key")})) as yard:
        launch = yard.launch("sh", "-c", "echo said; echo told >&2; kill -9 $$", key=KEY)
        await yard.engine.start(launch)
        assert (await ended(yard, launch, 0)).signal == 9
        await yard.engine.restart(launch, MASTER, 1)
        assert (await ended(yard, launch, 1)).signal == 9
        assert yard.out(launch.attempt) == "said\n" * 2
        assert yard.out(launch.attempt, stream=1).count("told\n") == 2
