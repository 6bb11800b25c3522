"""A replica that has ended is restarted in base_dir, once for each restart number."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.engines.local.harness import MASTER, EngineHarness, supervisor_ended
from turnout import chaos
from turnout.job import Cause, Ended, Launch, Mount, Policy, Program, ReplicaName, Role, Started, Synced
from turnout.vault import KeyRing

WORKER = ReplicaName("worker", 0)
KEY = "projects/p/locations/l/keyRings/r/cryptoKeys/k"


async def started(
    harness: EngineHarness, launch: Launch, restarts: int, name: ReplicaName = MASTER
) -> Started:
    wanted = launch.attempt, name, restarts
    found = await harness.wait(
        lambda r: isinstance(r, Started) and (r.attempt, r.replica, r.restarts) == wanted
    )
    assert isinstance(found, Started)
    return found


async def ended(harness: EngineHarness, launch: Launch, restarts: int, name: ReplicaName = MASTER) -> Ended:
    wanted = launch.attempt, name, restarts
    found = await harness.wait(
        lambda r: isinstance(r, Ended) and (r.attempt, r.replica, r.restarts) == wanted
    )
    assert isinstance(found, Ended)
    return found


@pytest.fixture
def count(base_dir: Path) -> Path:
    """A directory that jobs can write to."""
    directory = base_dir / "count"
    directory.mkdir()
    directory.chmod(0o777)
    return directory


def counting_launch(harness: EngineHarness, count: Path, script: str, **details: Any) -> Launch:
    """In the script, `$n` is the number of starts so far."""
    counted = "echo x >> $TURNOUT_MOUNT_0/count; n=$(wc -l < $TURNOUT_MOUNT_0/count); echo start $n; "
    return harness.launch(
        "sh", "-c", counted + script, mounts=(Mount(f"file://{count}", "/data"),), **details
    )


def starts(count: Path) -> int:
    return len((count / "count").read_text().split())


async def test_a_restarted_replica_keeps_name_address_ports_files_and_log(harness: EngineHarness):
    script = (
        'echo "$HOSTNAME $MASTER_ADDR:$MASTER_PORT $TF_CONFIG"; if [ -e $HOME/left ]; then exit 3; fi; '
        "touch $HOME/left; kill -9 $$"
    )
    launch = harness.launch("sh", "-c", script)
    await harness.engine.start(launch)
    first = await ended(harness, launch, 0)
    assert (first.cause, first.signal) == (Cause.EXIT, 9)
    await harness.engine.restart(launch, MASTER, 1)
    second = await ended(harness, launch, 1)
    assert (second.cause, second.code) == (Cause.EXIT, 3)
    one, other = harness.output(launch.attempt).splitlines()
    assert one == other
    assert (await started(harness, launch, 1)).address == (await started(harness, launch, 0)).address


async def test_the_other_replicas_continue(harness: EngineHarness, count: Path):
    asleep = Program(("sleep", "1000"))
    roles = (Role("master", asleep, leads=True), Role("worker", asleep, 1))
    launch = harness.launch(roles=roles)
    await harness.engine.start(launch)
    master, worker = await started(harness, launch, 0), await started(harness, launch, 0, WORKER)
    os.kill(worker.pid, signal.SIGKILL)
    await ended(harness, launch, 0, WORKER)
    await harness.engine.restart(launch, WORKER, 1)
    assert (await started(harness, launch, 1, WORKER)).pid != worker.pid
    assert os.path.exists(f"/proc/{master.pid}")
    await harness.engine.stop(launch.attempt, 0)
    for name, restarts in ((MASTER, 0), (WORKER, 1)):
        assert (await ended(harness, launch, restarts, name)).cause == Cause.STOPPED


async def test_a_repeated_restart_starts_it_once(harness: EngineHarness, count: Path):
    launch = counting_launch(harness, count, "if [ $n -gt 1 ]; then sleep 0.3; exit 0; fi; kill -9 $$")
    await harness.engine.start(launch)
    await ended(harness, launch, 0)
    for _ in range(3):
        await harness.engine.restart(launch, MASTER, 1)
    assert (await ended(harness, launch, 1)).code == 0
    await harness.engine.restart(launch, MASTER, 1)
    await harness.run("true")
    assert starts(count) == 2


async def test_a_time_limit_counts_from_the_first_start(harness: EngineHarness, count: Path):
    script = "if [ $n -gt 1 ]; then sleep 1000; fi; sleep 1; kill -9 $$"
    launch = counting_launch(harness, count, script, policy=Policy(time_limit=2, grace=1))
    await harness.engine.start(launch)
    await ended(harness, launch, 0)
    await harness.engine.restart(launch, MASTER, 1)
    end = await ended(harness, launch, 1)
    assert end.cause == Cause.TIME_LIMIT
    begun, again = await started(harness, launch, 0), await started(harness, launch, 1)
    assert end.at - begun.at >= 2e9 > end.at - again.at


async def test_the_next_service_and_supervisor_know_the_number_of_restarts(
    harness: EngineHarness, count: Path
):
    launch = counting_launch(harness, count, "if [ $n -gt 1 ]; then sleep 1000; fi; kill -9 $$")
    await harness.engine.start(launch)
    await ended(harness, launch, 0)
    await harness.engine.restart(launch, MASTER, 1)
    again = await started(harness, launch, 1)
    await harness.disconnect()
    await harness.reconnect()
    assert await started(harness, launch, 1) == again
    await harness.kill_supervisor()
    assert await started(harness, launch, 1) == again
    await harness.engine.restart(launch, MASTER, 1)
    await harness.engine.stop(launch.attempt, 0)
    assert (await ended(harness, launch, 1)).cause == Cause.STOPPED
    assert starts(count) == 2


@pytest.mark.parametrize("point", ["again", "moved_in", "prepared", "starting", "respawned"])
async def test_a_supervisor_killed_during_a_restart_starts_it_at_most_once(
    harness: EngineHarness, count: Path, point: str, monkeypatch: pytest.MonkeyPatch
):
    """If the replica does not run afterwards, the restart is repeated. It never runs twice."""
    launch = counting_launch(harness, count, "if [ $n -gt 1 ]; then sleep 1000; fi; kill -9 $$")
    await harness.engine.start(launch)
    await ended(harness, launch, 0)
    await harness.disconnect()
    await supervisor_ended(harness)
    monkeypatch.setattr(chaos, "kill_at", f"supervisor.{point}")
    await harness.reconnect()
    monkeypatch.setattr(chaos, "kill_at", "")
    harness.reports.clear()
    await harness.engine.restart(launch, MASTER, 1)
    await harness.wait(lambda report: isinstance(report, Synced))
    reported = {report.restarts for report in harness.reports if isinstance(report, Started)}
    assert reported == ({0, 1} if point == "respawned" else {0})
    await harness.engine.restart(launch, MASTER, 1)
    await started(harness, launch, 1)
    await harness.wait_for_output(launch.attempt, "start 2")
    await harness.run("true")
    assert starts(count) == 2
    await harness.engine.stop(launch.attempt, 0)
    assert (await ended(harness, launch, 1)).cause == Cause.STOPPED


@pytest.mark.parametrize("sandbox", ["none", "bubblewrap"])
async def test_an_encrypted_log_continues_after_a_restart(base_dir: Path, tmp_path: Path, sandbox: str):
    (tmp_path / "key").write_bytes(b"\1" * 32)
    async with EngineHarness(
        base_dir, sandbox=sandbox, ring=KeyRing({KEY: str(tmp_path / "key")})
    ) as harness:
        launch = harness.launch("sh", "-c", "echo out; echo err >&2; kill -9 $$", key=KEY)
        await harness.engine.start(launch)
        assert (await ended(harness, launch, 0)).signal == 9
        await harness.engine.restart(launch, MASTER, 1)
        assert (await ended(harness, launch, 1)).signal == 9
        assert harness.output(launch.attempt) == "out\n" * 2
        assert harness.output(launch.attempt, stream=1).count("err\n") == 2
