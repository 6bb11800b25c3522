"""Copies of the runner in a shared directory: they are used for long, and do not stay for ever."""

import os
import time
from pathlib import Path

import pytest

from turnout.engines.slurm.shared_runner import KEPT_SECONDS, place


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "runner.pyz"
    path.write_text("the runner")
    return path


def name(letter: str) -> str:
    return f"runner-{letter * 64}.pyz"


def make_old(*paths: Path) -> None:
    for path in paths:
        path.touch()
        os.utime(path, (0, time.time() - KEPT_SECONDS - 60))


def test_copies_that_no_service_has_used_for_long_are_removed(tmp_path: Path, source: Path):
    shared = tmp_path / "shared"
    shared.mkdir()
    recent = shared / name("b")
    recent.touch()
    make_old(shared / name("a"), shared / f".{name('a')}.17")
    place(source, shared / name("c"))
    assert {path.name for path in shared.iterdir()} == {name("b"), name("c")}
    assert (shared / name("c")).read_text() == "the runner"


def test_a_copy_that_is_used_stays(tmp_path: Path, source: Path):
    target = tmp_path / "shared" / name("a")
    place(source, target)
    make_old(target)
    place(source, target)
    place(source, target.with_name(name("b")))
    assert target.exists()


def test_nothing_else_in_the_directory_is_removed(tmp_path: Path, source: Path):
    shared = tmp_path / "shared"
    shared.mkdir()
    others = [shared / "runner-mine.pyz", shared / "notes", shared / f"{name('a')}.keep"]
    make_old(*others)
    (shared / name("d")).mkdir()
    os.utime(shared / name("d"), (0, 0))
    place(source, shared / name("c"))
    assert {path.name for path in shared.iterdir()} == {*(path.name for path in others), name("c"), name("d")}
