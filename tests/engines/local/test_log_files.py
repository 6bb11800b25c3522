"""Without a sandbox a program can do anything to its own log. Whoever reads it is neither held up nor misled."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.engines.local.yard import MASTER, Yard
from turnout.engines.local.log import FileLog


@pytest.mark.parametrize("replace", ["mkfifo {}", "ln -s /etc/passwd {}", "ln -s {} {}", "mkdir {}", ": {}"])
@pytest.mark.timeout(30)
async def test_what_is_put_in_its_place_is_not_read(bare_yard: Yard, replace: str):
    script = ["cd $HOME/..", "rm -f stdout stderr marks"]
    script += [replace.replace("{}", name) for name in ("stdout", "stderr", "marks")]
    end = await bare_yard.run("sh", "-c", "; ".join(script))
    log = bare_yard.engine.log(end.attempt, MASTER)
    assert [log.size(stream) for stream in (0, 1)] == [0, 0]
    assert (log.read(0, 0, 10), log.hole(1), log.marks(), log.mark_count()) == (b"", None, [], 0)


async def test_it_ends_where_a_hole_at_its_end_begins(yard: Yard):
    attempt = await yard.python("import os; os.write(1, b'x' * 8192); os.ftruncate(1, 1 << 37)")
    await yard.ended(attempt)
    log = yard.engine.log(attempt, MASTER)
    assert (log.size(0), log.hole(0)) == (8192, None)
    assert log.read(0, 0, 1 << 40) == b"x" * 8192
    assert log.read(0, 1 << 36, 1 << 40) == b""


def test_holes_in_the_middle_are_skipped_with_what_lies_between(tmp_path: Path):
    with (tmp_path / "stdout").open("wb") as file:
        for text, at in ((b"a" * 4096, 0), (b"b" * 4096, 1 << 36), (b"c" * 4096, 1 << 37)):
            os.pwrite(file.fileno(), text, at)
    log = FileLog(tmp_path)
    assert log.hole(0) == (4096, 1 << 37)
    assert log.read(0, 0, 1 << 40) == b"a" * 4096
    assert log.read(0, 5000, 1 << 40) == b""
    assert log.read(0, 1 << 37, 1 << 40) == b"c" * 4096


def test_thousands_of_holes_keep_nobody_counting(tmp_path: Path):
    with (tmp_path / "stdout").open("wb") as file:
        for number in range(1000):
            os.pwrite(file.fileno(), b"x", number << 20)
    log = FileLog(tmp_path)
    hole = log.hole(0)
    assert hole is not None
    assert log.size(0) == hole[1] < 100 << 20


def test_marks_that_are_mostly_a_hole_are_few(tmp_path: Path):
    with (tmp_path / "marks").open("wb") as file:
        file.write(b"\1" * 4096)
        file.truncate(1 << 37)
    log = FileLog(tmp_path)
    assert len(log.marks()) == log.mark_count() == 4096 // 24


def test_a_file_that_now_belongs_to_another_job_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The directory of one that printed nothing is used again, at any moment between opening and reading."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old/stdout").touch()
    log = FileLog(tmp_path / "old")
    open_file = os.open

    def open_and_lose(*arguments: Any, **options: Any) -> int:
        fd = open_file(*arguments, **options)
        (tmp_path / "old").rename(tmp_path / "new")
        (tmp_path / "new/stdout").write_text("of another job")
        return fd

    monkeypatch.setattr(os, "open", open_and_lose)
    assert log.read(0, 0, 100) == b""


async def test_one_that_printed_nothing_leaves_nothing_behind(yard: Yard):
    attempt = await yard.start("true")
    await yard.ended(attempt)
    await yard.engine.forget(attempt)
    await yard.ended(await yard.start("true"))
    assert yard.engine.log(attempt, MASTER).size(0) == 0
    assert not yard.paths.replica(attempt, MASTER).exists()
