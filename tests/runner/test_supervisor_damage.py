"""Damage to the journal: recovery never fails, and other jobs are not affected."""

import random
import socket
from pathlib import Path

import pytest

from turnout.runner.supervisor import procfs
from turnout.runner.supervisor.logs.sealed_log import LogEncrypters
from turnout.runner.supervisor.recovery.journal import Line, encode, with_checksum
from turnout.runner.supervisor.recovery.recover import recover
from turnout.runner.supervisor.supervisor import Supervisor

pytestmark = pytest.mark.usefixtures("files_are_closed")

NO_PROCESS = 1 << 22
"""No process has this id: the kernel's ids end below."""


def lines_of_job(number: int, boot: str) -> list[Line]:
    """The lines of a gang of two, one of which was restarted, up to one of the states that a job can be in."""
    attempt = f"{1_000_000_000_000_000_000 + number}.1"
    claim = {"a": attempt, "note": {}, "limit": None, "grace": 1, "log_bytes": 1 << 30, "boot": boot}
    lines: list[Line] = [
        {"claim": claim | {"replicas": {"master-0": False, "worker-0": False}}},
        {"started": [attempt, "master-0", NO_PROCESS, 5, 10, -1]},
        {"started": [attempt, "worker-0", NO_PROCESS, 5, 11, -1]},
        {"ended": [attempt, "worker-0", 12, "exit", 1, None, ""]},
        {"again": [attempt, "worker-0", 1], "in": boot},
        {"started": [attempt, "worker-0", NO_PROCESS, 6, 13, -1, 1]},
        {"stop": [attempt, ["worker-0"], "stopped", 14]},
        {"ended": [attempt, "worker-0", 15, "stopped", None, 15, "", 1]},
        {"ended": [attempt, "master-0", 16, "exit", number % 100, None, "of its own"]},
        {"forgotten": attempt},
    ]
    lines = lines[: 3 + number % 8]
    if number % 3 == 0:
        return lines  # of an older version
    lines[0]["claim"]["tells_starting"] = True
    return [one for line in lines for one in (*_before(line), line)]


def _before(line: Line) -> list[Line]:
    match line:
        case {"started": [attempt, name, _, _, _, _, *which]}:
            return [{"starting": [attempt, name, *which]}]
    return []


def attempt_of(line: Line) -> str:
    match line:
        case {"claim": {"a": attempt}} | {"forgotten": attempt}:
            return attempt
        case {"boot": _}:
            return ""
    return next(iter(line.values()))[0]


def written(boot: str) -> list[Line]:
    jobs = [lines_of_job(number, boot) for number in range(24)]
    lines: list[Line] = [{"boot": boot}]
    rng = random.Random(7)
    while any(jobs):
        lines.append(rng.choice([job for job in jobs if job]).pop(0))
    return lines


def reported(place: Path, data: bytes) -> dict[str, list[Line]]:
    """What a supervisor that starts with this journal reports of each attempt, without the times of what it ends
    itself.
    """
    place.mkdir()
    (place / "attempts").mkdir()
    (place / "journal").write_bytes(data)
    listener, other = socket.socketpair()
    with listener, other:
        encrypters = LogEncrypters("none", [], now=False)
        supervisor = Supervisor(str(place), str(place / "attempts"), listener, None, 1024, False, encrypters)
        recover(supervisor)
        found = {attempt: gang.lines for attempt, gang in supervisor.gangs.items()}
        again = Supervisor(str(place), str(place / "attempts"), listener, None, 1024, False, encrypters)
        recover(again)
        assert {attempt: gang.lines for attempt, gang in again.gangs.items()} == found, (
            "the next supervisor reports the same"
        )
    return {attempt: [_without_time(line) for line in lines] for attempt, lines in found.items()}


def _without_time(line: Line) -> Line:
    match line:
        case {"ended": [attempt, name, int(at), *rest]} if at > 1000:
            return {"ended": [attempt, name, 0, *rest]}
    return line


@pytest.fixture(autouse=True)
def no_process_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "marked_processes", dict)


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_line_does_not_affect_other_jobs(tmp_path: Path, seed: int):
    rng = random.Random(seed)
    lines = written(procfs.boot_id())
    raws = [with_checksum(encode(line)) for line in lines]
    truth = reported(tmp_path / "whole", b"".join(raws))
    for turn in range(6):
        number = rng.randrange(len(raws))
        touched = {attempt_of(lines[number])}
        if "started" in lines[number] or "starting" in lines[number]:
            # One of them may have run, so their restarts are not undone.
            touched |= {attempt_of(line) for line in lines if "again" in line}
        raw = bytearray(raws[number])
        at = rng.randrange(len(raw))
        match rng.choice(["flip", "delete", "line", "zero", "truncate"]):
            case "flip":
                raw[at] ^= 1 << rng.randrange(8)
            case "delete":
                del raw[at]
            case "line":
                raw.clear()
            case "zero":
                raw[1:-1] = bytes(len(raw) - 2)
                raw[0] = ord("{")
                touched |= {attempt_of(line) for line in lines if "again" in line}
            case _:
                touched = {attempt_of(line) for line in lines[number:]}
                raw = raw[:at] if at else bytearray()
                del raws[number + 1 :]
        data = b"".join([*raws[:number], bytes(raw), *raws[number + 1 :]])
        found = reported(tmp_path / str(turn), data)
        for attempt in truth.keys() - touched:
            assert found[attempt] == truth[attempt]
        raws = [with_checksum(encode(line)) for line in lines]


def test_an_end_is_reported_even_without_a_claim(tmp_path: Path):
    lines = [line for line in lines_of_job(6, procfs.boot_id()) if "claim" not in line]
    found = reported(tmp_path / "one", b"".join(with_checksum(encode(line)) for line in lines))
    ((attempt, reported_lines),) = found.items()
    assert reported_lines[0]["claim"]["partial"]
    ends = [line["ended"] for line in reported_lines if "ended" in line]
    assert [attempt, "master-0", 16, "exit", 6, None, "of its own"] in ends
    assert [attempt, "worker-0", 15, "stopped", None, 15, "", 1] in ends


def test_a_journal_of_random_bytes(tmp_path: Path):
    rng = random.Random(3)
    for number in range(20):
        assert reported(tmp_path / str(number), rng.randbytes(rng.randrange(5000))) == {}
