"""Without a sandbox a program can do anything to its own log. Its readers are neither delayed nor misled."""

import os
from pathlib import Path

import pytest

from tests.engines.local.harness import MASTER, EngineHarness
from turnout.engines.log_files import FileLog


@pytest.mark.parametrize("replace", ["mkfifo {}", "ln -s /etc/passwd {}", "ln -s {} {}", "mkdir {}", ": {}"])
@pytest.mark.timeout(30)
async def test_only_a_regular_file_is_read_as_a_log(unsandboxed: EngineHarness, replace: str):
    script = ["cd $HOME/..", "rm -f stdout stderr marks"]
    script += [replace.replace("{}", name) for name in ("stdout", "stderr", "marks")]
    end = await unsandboxed.run("sh", "-c", "; ".join(script))
    log = unsandboxed.engine.log(end.attempt, MASTER)
    assert [log.size(stream) for stream in (0, 1)] == [0, 0]
    assert (log.read(0, 0, 10), log.hole(1), log.marks(), log.mark_count()) == (b"", None, [], 0)


async def test_a_log_ends_where_a_hole_at_its_end_starts(harness: EngineHarness):
    attempt = await harness.python("import os; os.write(1, b'x' * 8192); os.ftruncate(1, 1 << 37)")
    await harness.ended(attempt)
    log = harness.engine.log(attempt, MASTER)
    assert (log.size(0), log.hole(0)) == (8192, None)
    assert log.read(0, 0, 1 << 40) == b"x" * 8192
    assert log.read(0, 1 << 36, 1 << 40) == b""


def test_holes_in_the_middle_are_skipped_with_the_data_between_them(tmp_path: Path):
    with (tmp_path / "stdout").open("wb") as file:
        for text, at in ((b"a" * 4096, 0), (b"b" * 4096, 1 << 36), (b"c" * 4096, 1 << 37)):
            os.pwrite(file.fileno(), text, at)
    log = FileLog(tmp_path)
    assert log.hole(0) == (4096, 1 << 37)
    assert log.read(0, 0, 1 << 40) == b"a" * 4096
    assert log.read(0, 5000, 1 << 40) == b""
    assert log.read(0, 1 << 37, 1 << 40) == b"c" * 4096


def test_thousands_of_holes_do_not_delay_a_reader(tmp_path: Path):
    with (tmp_path / "stdout").open("wb") as file:
        for number in range(1000):
            os.pwrite(file.fileno(), b"x", number << 20)
    log = FileLog(tmp_path)
    hole = log.hole(0)
    assert hole is not None
    assert log.size(0) == hole[1] < 100 << 20


def test_a_hole_in_the_marks_is_not_read_as_marks(tmp_path: Path):
    with (tmp_path / "marks").open("wb") as file:
        file.write(b"\1" * 4096)
        file.truncate(1 << 37)
    log = FileLog(tmp_path)
    assert len(log.marks()) == log.mark_count() == 4096 // 24


async def test_a_job_that_printed_nothing_leaves_no_files(harness: EngineHarness):
    attempt = await harness.start("true")
    await harness.ended(attempt)
    await harness.engine.forget(attempt)
    await harness.ended(await harness.start("true"))
    assert harness.engine.log(attempt, MASTER).size(0) == 0
    assert not harness.paths.replica(attempt, MASTER).exists()
