"""`remove` deletes any tree, and nothing outside of it."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from turnout.runner.supervisor.disk import remove as module
from turnout.runner.supervisor.disk.remove import remove


def deep(top: Path, levels: int) -> None:
    top.mkdir()
    here = os.open(top, os.O_PATH)
    for _ in range(levels):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_PATH, dir_fd=here)
        os.close(here)
        here = below
    os.mknod("leaf", dir_fd=here)
    os.close(here)


@pytest.mark.parametrize("levels", [1, 5_000])
def test_removes_a_deep_tree(tmp_path: Path, levels: int):
    deep(tmp_path / "top", levels)
    remove(str(tmp_path / "top"))
    assert os.listdir(tmp_path) == []


def test_removes_many_entries(tmp_path: Path):
    """More entries than one pass handles, in two levels."""
    wide = tmp_path / "top" / "wide"
    wide.mkdir(parents=True)
    for number in range(10_100):
        (wide / str(number)).touch()
    remove(str(tmp_path / "top"))
    assert os.listdir(tmp_path) == []


def test_removes_any_names(tmp_path: Path):
    for name in (b"\xff\xfe", b".1", b".2", b"a\nb", b"-rf"):
        below = os.path.join(os.fsencode(tmp_path), b"top", name, name)
        os.makedirs(below)
        with open(os.path.join(below, name), "w"):
            pass
    remove(str(tmp_path / "top"))
    assert os.listdir(tmp_path) == []


def test_links_are_not_followed(tmp_path: Path):
    """What it leads to is neither removed nor changed."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "file").touch()
    inside = tmp_path / "top" / "a"
    inside.mkdir(parents=True)
    for place in (tmp_path / "top" / "link", inside / "link"):
        place.symlink_to(outside)
    (tmp_path / "link").symlink_to(outside)
    remove(str(tmp_path / "top"))
    remove(str(tmp_path / "link"))
    assert os.listdir(tmp_path) == ["outside"]
    assert os.listdir(outside) == ["file"]
    assert stat.S_IMODE(outside.stat().st_mode) == 0o755


def test_a_missing_path_is_no_error(tmp_path: Path):
    remove(str(tmp_path / "nothing"))


def test_an_error_does_not_keep_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("top/a/b", "top/stays/b", "top/z/b"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").touch()
    opened = module._open_writable

    def refused(name: str, above: int | None) -> int:
        if name == "stays":
            raise PermissionError(1, "no")
        return opened(name, above)

    monkeypatch.setattr(module, "_open_writable", refused)
    with pytest.raises(PermissionError):
        remove(str(tmp_path / "top"))
    assert os.listdir(tmp_path / "top") == ["stays"]


PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
from supervisor.disk.remove import remove
os.chdir(sys.argv[2])
for name in ("top/closed/a", "top/read-only/a/b", "top/empty"):
    os.makedirs(name)
open("top/read-only/a/b/file", "w").close()
for name, mode in (("closed/a", 0), ("closed", 0), ("read-only/a/b", 0o500), ("read-only/a", 0o500), ("empty", 0)):
    os.chmod("top/" + name, mode)
remove("top")
print(os.listdir("."))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_removes_directories_that_their_owner_may_not_enter(tmp_path: Path):
    place = Path("/tmp") / f"turnout-remove-{os.getpid()}"
    place.mkdir(mode=0o777)
    os.chmod(place, 0o777)
    argv = ["/usr/bin/python3", "-I", "-c", PROGRAM, str(Path(module.__file__).parents[2]), str(place)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, user=65534, group=65534, extra_groups=[])
    finally:
        place.rmdir()
    assert (done.stdout, done.stderr) == ("[]\n", "")
