"""Measuring a directory: blocks count, each file once, whatever the tree looks like."""

import contextlib
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.runner.test_remove import deep
from tests.running import python_for
from turnout.runner.supervisor.disk import usage
from turnout.runner.supervisor.disk.remove import remove
from turnout.runner.supervisor.disk.watch import describe_usage

MIB = 1 << 20
PLENTY = 1 << 40


def measured(top: Path, limit: int = PLENTY) -> int:
    look = usage.measure(str(top), limit)
    while True:
        try:
            next(look)
        except StopIteration as done:
            return done.value


def du(top: Path) -> int:
    """Without the directory itself, which the program did not make."""
    text = subprocess.run(["du", "-s", "--block-size=1", str(top)], check=True, capture_output=True).stdout
    return int(text.split()[0]) - top.stat().st_blocks * 512


def fill(path: Path, size: int) -> None:
    path.write_bytes(os.urandom(size))


def test_blocks_count_and_each_file_counts_once(tmp_path: Path):
    fill(tmp_path / "one", 3 * MIB)
    (tmp_path / "below").mkdir()
    os.link(tmp_path / "one", tmp_path / "below" / "again")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    for number in range(50):
        fill(tmp_path / "below" / f"small-{number}", 10)
        os.link(tmp_path / "below" / f"small-{number}", tmp_path / f"linked-{number}")
    (tmp_path / "link").symlink_to("/")
    assert measured(tmp_path) == du(tmp_path)
    assert 3 * MIB <= measured(tmp_path) < 4 * MIB


def test_too_many_links_to_remember(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(usage, "_MAX_LINKED", 0)
    fill(tmp_path / "one", 3 * MIB)
    for number in range(2):
        os.link(tmp_path / "one", tmp_path / str(number))
    assert measured(tmp_path) == du(tmp_path)


@pytest.mark.parametrize("levels", [1, 63, 64, 65, 5_000])
def test_measures_a_deep_tree(tmp_path: Path, levels: int):
    top = tmp_path / "top"
    try:
        deep(top, levels)
        below = os.path.join(top, *["d"] * min(levels, 100))
        fill(Path(below) / "file", MIB)
        for name in "abc":
            os.mkdir(os.path.join(below, name))
            fill(Path(below) / name / "file", MIB)
        assert measured(top) >= 4 * MIB
        assert measured(top) < 4 * MIB + (levels + 10) * 8192
        assert not open_below(top)
    finally:
        # pytest removes its directories recursively, which fails for deep trees.
        remove(str(top))


def open_below(top: Path) -> list[str]:
    files: list[str] = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            files.append(os.readlink(f"/proc/self/fd/{name}"))
    return [file for file in files if file.startswith(str(top))]


def test_measures_many_entries(tmp_path: Path):
    """The measurement yields now and then, and can be closed early."""
    for number in range(3000):
        (tmp_path / str(number)).mkdir()
    assert measured(tmp_path) == du(tmp_path)
    assert len(list(usage.measure(str(tmp_path), PLENTY))) == 3
    look = usage.measure(str(tmp_path), PLENTY)
    next(look)
    look.close()


def test_a_missing_directory_uses_nothing(tmp_path: Path):
    assert measured(tmp_path / "no") == 0
    (tmp_path / "link").symlink_to("/usr")
    assert measured(tmp_path / "link") == 0


HIDDEN = """
import json, os, sys
from pathlib import Path
exec(sys.stdin.read())
top = Path(sys.argv[1])
for mode, way in ((0, "a"), (0o400, "b"), (0o300, "c/" * 70 + "d")):
    inner = top / way / "inner"
    inner.mkdir(parents=True)
    (inner / "file").write_bytes(os.urandom(1 << 20))
    (top / way).chmod(mode)
try:
    look = measure(str(top), 1 << 40)
    while True:
        next(look)
except StopIteration as done:
    print(json.dumps([done.value, [(top / way).stat().st_mode & 0o777 for way in ("a", "b", "c/" * 70 + "d")]]))
for way in ("a", "b", "c/" * 70 + "d"):
    (top / way).chmod(0o700)
"""


def test_unreadable_directories_count():
    """As an ordinary user. Their modes are restored."""
    user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    made = subprocess.run(["mktemp", "-d"], **user, check=True, capture_output=True, text=True)
    top = Path(made.stdout.strip())
    argv = [python_for(user.get("user")), "-c", HIDDEN, str(top)]
    # That user cannot import the other modules, and they are not needed here.
    source = re.sub(r"^from \.+.*\n", "", Path(usage.__file__).read_text(), flags=re.MULTILINE)
    try:
        told = subprocess.run(argv, **user, check=True, capture_output=True, text=True, input=source).stdout
    finally:
        subprocess.run(["rm", "-rf", str(top)], check=True)
    used, modes = json.loads(told)
    assert 3 * MIB <= used < 4 * MIB
    assert modes == [0, 0o400, 0o300]


@pytest.mark.parametrize(
    ("used", "limit", "text"),
    [
        (int(12.34 * (1 << 30)), 10 << 30, "used 12.3 GB of 10 GB"),
        ((10 << 30) + 1, 10 << 30, "used 10 GB of 10 GB"),
        ((10 << 30) + (30 << 20), 10 << 30, "used 10.03 GB of 10 GB"),
        (25 * MIB, 20 * MIB, "used 25 MB of 20 MB"),
        (65000 << 30, 64000 << 30, "used 65000 GB of 64000 GB"),
    ],
)
def test_message_about_the_usage(used: int, limit: int, text: str):
    assert describe_usage(used, limit) == text
