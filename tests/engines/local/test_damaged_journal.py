"""The supervisor's journal is damaged while jobs run: each job ends once, and none is reported ended while it runs."""

import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engines.local.harness import EngineHarness, running_processes, supervisor_ended
from turnout.config import Settings
from turnout.engines.local.supervisor import client
from turnout.job import Attempt, Cause, Mount, Synced
from turnout.paths import Paths
from turnout.runner.supervisor.descriptors import receive
from turnout.runner.supervisor.recovery.journal import encode, with_checksum


def lines_of(attempt: Attempt, kind: str, lines: list[bytes]) -> list[int]:
    return [
        n for n, line in enumerate(lines) if f'{{"{kind}":'.encode() in line and str(attempt).encode() in line
    ]


def flipped(line: bytes) -> bytes:
    """Flips one bit in the middle of the line."""
    raw = bytearray(line)
    raw[len(raw) // 2] ^= 1
    return bytes(raw)


DAMAGE: dict[str, Callable[[list[bytes], Attempt], list[bytes]]] = {
    "claim": lambda lines, job: [
        flipped(line) if n in lines_of(job, "claim", lines) else line for n, line in enumerate(lines)
    ],
    "no claim": lambda lines, job: [
        line for n, line in enumerate(lines) if n not in lines_of(job, "claim", lines)
    ],
    "started": lambda lines, job: [
        flipped(line) if n in lines_of(job, "started", lines) else line for n, line in enumerate(lines)
    ],
    "no started": lambda lines, job: [
        line for n, line in enumerate(lines) if n not in lines_of(job, "started", lines)
    ],
    "boot": lambda lines, _: [flipped(lines[0]), *lines[1:]],
    "nothing left of it": lambda lines, job: [line for line in lines if str(job).encode() not in line],
}
JOB_IS_LOST = ("claim", "no claim", "nothing left of it")


@pytest.mark.parametrize("damage", DAMAGE)
async def test_jobs_survive_a_damaged_journal(harness: EngineHarness, base_dir: Path, damage: str):
    (base_dir / "go").mkdir()
    (base_dir / "go").chmod(0o777)
    mounts = (Mount(f"file://{base_dir / 'go'}", "/data"),)
    script = "echo $0 >> starts; echo on; while [ ! -e now ]; do sleep 0.021; done; exit $0"
    attempts = [
        await harness.start("sh", "-c", script, str(number + 3), mounts=mounts) for number in range(3)
    ]
    for attempt in attempts:
        await harness.wait_for_output(attempt, "on")
    pids = [(await harness.started(attempt)).pid for attempt in attempts]
    await harness.disconnect()
    os.kill(harness.supervisor, signal.SIGKILL)
    await supervisor_ended(harness)
    journal = harness.paths.supervisor / "journal"
    journal.write_bytes(b"".join(DAMAGE[damage](journal.read_bytes().splitlines(keepends=True), attempts[1])))
    await harness.reconnect()
    held = next(report for report in harness.reports if isinstance(report, Synced)).held
    ended = damage in JOB_IS_LOST
    if ended:
        end = await harness.ended(attempts[1])
        assert end.cause == Cause.LOST
        assert "damaged" in end.message
        assert not Path(f"/proc/{pids[1]}").exists() or not running_processes(f"{attempts[1]}")
        assert held == {attempts[0], attempts[2]}
    else:
        assert held == set(attempts)
    (base_dir / "go" / "now").touch()
    for number, attempt in enumerate(attempts):
        if number != 1 or not ended:
            end = await harness.ended(attempt)
            assert (end.cause, end.code) == (Cause.EXIT, number + 3)
    assert sorted((base_dir / "go" / "starts").read_text().split()) == ["3", "4", "5"]
    aside = harness.paths.bad_journal
    assert aside.exists() == (damage in ("claim", "started", "boot"))
    assert (await harness.run("true")).code == 0


async def reconnect_with_changed_journal(
    harness: EngineHarness, change: Callable[[dict[str, Any]], None]
) -> None:
    """Reconnects to a new supervisor, after the journal was changed."""
    await harness.disconnect()
    os.kill(harness.supervisor, signal.SIGKILL)
    await supervisor_ended(harness)
    journal = harness.paths.supervisor / "journal"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    for line in lines:
        del line["c"]
        change(line)
    journal.write_bytes(b"".join(with_checksum(encode(line)) for line in lines))
    await harness.reconnect()


async def test_an_unreadable_end_affects_only_its_own_job(
    unsandboxed: EngineHarness, caplog: pytest.LogCaptureFixture
):
    first = await unsandboxed.run("sh", "-c", "exit 3")
    second = await unsandboxed.run("sh", "-c", "exit 4")

    def change(line: dict[str, Any]) -> None:
        if "ended" in line and line["ended"][0] == str(first.attempt):
            line["ended"][3] = "of the next version"

    await reconnect_with_changed_journal(unsandboxed, change)
    end = await unsandboxed.ended(first.attempt)
    assert end.cause == Cause.LOST
    assert "could not be read" in end.message
    assert (await unsandboxed.ended(second.attempt)).code == 4
    assert str(unsandboxed.paths.unread) in caplog.text
    assert "of the next version" in unsandboxed.paths.unread.read_text()


async def test_an_unreadable_claim_ends_only_its_own_job(harness: EngineHarness):
    first = await harness.start("sleep", "1000")
    second = await harness.start("sh", "-c", "trap 'exit 4' TERM; echo on; while :; do sleep 0.01; done")
    await harness.started(first)
    await harness.wait_for_output(second, "on")

    def change(line: dict[str, Any]) -> None:
        if "claim" in line and line["claim"]["a"] == str(first):
            line["claim"]["note"] = {"master-0": "nonsense"}

    await reconnect_with_changed_journal(harness, change)
    end = await harness.ended(first)
    assert end.cause == Cause.LOST
    await harness.engine.stop(second, 30)
    assert (await harness.ended(second)).code == 4


@pytest.mark.parametrize("word", ["hello", "synced"])
@pytest.mark.parametrize("damage", ["no JSON", "another word"])
async def test_a_lost_or_damaged_message_makes_the_service_reconnect(
    unsandboxed: EngineHarness, monkeypatch: pytest.MonkeyPatch, word: str, damage: str
):
    attempt = await unsandboxed.start("sh", "-c", "trap 'exit 4' TERM; echo on; while :; do sleep 0.01; done")
    await unsandboxed.wait_for_output(attempt, "on")
    await unsandboxed.disconnect()
    damaged = 0

    def misheard(connection: socket.socket, most: int) -> tuple[bytes, list[int]]:
        nonlocal damaged
        data, files = receive(connection, most)
        right = f'{{"{word}":'.encode()
        if not damaged and right in data:
            damaged += 1
            data = data.replace(right, right[:3] + (b'"' if damage == "no JSON" else b"_") + right[4:])
        return data, files

    monkeypatch.setattr(client, "receive", misheard)
    monkeypatch.setattr(client, "SYNC_SECONDS", 1.0)
    await unsandboxed.reconnect()
    assert damaged == 1
    assert (await unsandboxed.started(attempt)).attempt == attempt
    await unsandboxed.engine.stop(attempt, 30)
    assert (await unsandboxed.ended(attempt)).code == 4


async def test_doctor_names_the_unreadable_lines(base_dir: Path):
    from turnout import config
    from turnout.cli import checks
    from turnout.cli.checks import CheckStatus

    settings: Settings = config.load(flags={"server": {"data": str(base_dir)}})
    assert checks.supervisor(settings).status is CheckStatus.OK
    paths = Paths(base_dir)
    paths.supervisor.mkdir()
    paths.bad_journal.write_text(json.dumps({"tomb": 1}) + "\n")
    found = checks.supervisor(settings)
    assert found.status is CheckStatus.WARN
    assert str(paths.bad_journal) in found.advice
