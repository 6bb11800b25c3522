"""Old files of the service are removed, and no link leads the cleanup out of the data directory."""

import os
import time
from pathlib import Path

import pytest

from tests.engines.local.harness import EngineHarness
from turnout.engines.local.cleanup import leftovers
from turnout.job import Attempt
from turnout.paths import Paths


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path)
    paths.supervisor.mkdir()
    (paths.search / "fonts").mkdir(parents=True)
    return paths


def old_file(path: Path, text: str = "12345") -> Path:
    path.write_text(text)
    os.utime(path, (1, 1))
    return path


def test_old_unreadable_records_are_removed(paths: Paths):
    old = [old_file(paths.bad_journal), old_file(paths.unread), old_file(paths.search / "fonts/list.json")]
    paths.unreadable.write_text("of today")
    before = time.time() - 3600
    assert leftovers.clear(paths, before, True) == (3, 15)
    assert all(path.exists() for path in old)
    assert leftovers.clear(paths, before, False) == (3, 15)
    assert not any(path.exists() for path in old)
    assert paths.unreadable.read_text() == "of today"
    assert leftovers.clear(paths, before, False) == (0, 0)


def test_cleanup_follows_no_link(paths: Paths, tmp_path: Path):
    other = old_file(tmp_path / "other", "x" * 1000)
    (tmp_path / "elsewhere").mkdir()
    inside = old_file(tmp_path / "elsewhere/inside")
    (paths.search / "link").symlink_to(tmp_path / "elsewhere")
    paths.bad_journal.symlink_to(other)
    (paths.supervisor / "log").symlink_to(other)
    assert leftovers.trim_log(paths, 100, False) == (0, 0)
    leftovers.clear(paths, time.time() + 60, False)
    assert inside.exists()
    assert other.stat().st_size == 1000


def test_the_supervisors_log_is_cut_to_its_newest_lines(paths: Paths):
    with (paths.supervisor / "log").open("a") as writer:
        for number in range(1000):
            print(f"line {number}", file=writer)
        writer.flush()
        size = writer.tell()
        assert leftovers.trim_log(paths, size, False) == (0, 0)
        count, freed = leftovers.trim_log(paths, 1000, True)
        assert writer.tell() == size
        assert leftovers.trim_log(paths, 1000, False) == (count, freed)
        print("after", file=writer)
    lines = (paths.supervisor / "log").read_text().splitlines()
    assert count == 1
    assert lines == [*(f"line {number}" for number in range(1001 - len(lines), 1000)), "after"]
    assert (paths.supervisor / "log").stat().st_size == size - freed + len("after\n")


async def test_plans_of_unknown_attempts_are_removed(base_dir: Path):
    async with EngineHarness(base_dir, sandbox="none") as harness:
        staging = harness.paths.staging
        staging.mkdir(exist_ok=True)
        for name in ("7.1.json", "7.1.0.state", "7.1.new", "8.1.json", "README"):
            (staging / name).touch()
        assert {Attempt(7, 1), Attempt(8, 1)} <= set(await harness.engine.attempts_on_disk())
        await harness.engine.remove([Attempt(7, 1)])
        assert sorted(path.name for path in staging.iterdir()) == ["8.1.json", "README"]
