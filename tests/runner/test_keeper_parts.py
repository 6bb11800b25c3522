"""The keeper's parts, each by itself."""

import contextlib
import itertools
import os
import socket
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from turnout.runner.keeper import cgroups, processes
from turnout.runner.keeper.channel import Channel
from turnout.runner.keeper.clone import clone_into
from turnout.runner.keeper.journal import Journal
from turnout.runner.keeper.logs import Log
from turnout.runner.keeper.spares import Spares

UNIFIED = next(
    (p for p in map(Path, ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")) if (p / "cgroup.procs").exists()),
    None,
)


# The journal.


def test_the_journal_gives_back_what_was_written(tmp_path: Path):
    Journal(str(tmp_path)).append({"boot": "a"}, {"tomb": "1.1"})
    assert list(Journal(str(tmp_path)).read()) == [{"boot": "a"}, {"tomb": "1.1"}]


@pytest.mark.parametrize(
    "torn", ['{"started": ["1.1"', '{"tomb": "2.1"}', "garbage\n", '\0\0\0\n{"tomb": "3.1"}\n']
)
def test_a_torn_end_is_cut_off(tmp_path: Path, torn: str):
    Journal(str(tmp_path)).append({"tomb": "1.1"})
    with (tmp_path / "journal").open("a") as file:
        file.write(torn)
    again = Journal(str(tmp_path))
    assert list(again.read()) == [{"tomb": "1.1"}]
    again.append({"tomb": "4.1"})
    assert list(Journal(str(tmp_path)).read()) == [{"tomb": "1.1"}, {"tomb": "4.1"}]


def test_a_rewrite_keeps_only_what_is_needed(tmp_path: Path):
    journal = Journal(str(tmp_path))
    for number in range(2001):
        journal.append({"tomb": str(number)})
    assert journal.worth_compacting(10)
    assert not journal.worth_compacting(1000)
    journal.rewrite([{"tomb": "5"}])
    journal.append({"forgotten": "5"})
    assert list(Journal(str(tmp_path)).read()) == [{"tomb": "5"}, {"forgotten": "5"}]
    assert (tmp_path / "journal").stat().st_mode & 0o777 == 0o600


# Marks.


def test_marks_are_apart_even_if_the_clock_stands_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("time.time_ns", lambda: 1_000)
    log = Log(str(tmp_path), 1 << 30)
    for _ in range(3):
        os.write(log.streams[0], b"x")
        assert log.mark()
    assert not log.mark()
    log.close()
    marks = list(struct.iter_unpack("<QQQ", (tmp_path / "marks").read_bytes()))
    assert [size for _, size, _ in marks] == [1, 2, 3]
    assert all(later[0] - earlier[0] == 1_000_000 for earlier, later in itertools.pairwise(marks))


def test_an_index_goes_on_where_it_ended(tmp_path: Path):
    first = Log(str(tmp_path), 1 << 30)
    os.write(first.streams[1], b"xy")
    first.mark()
    first.close()
    with (tmp_path / "marks").open("ab") as file:
        file.write(b"torn")
    second = Log(str(tmp_path), 1 << 30)
    assert not second.mark()
    os.write(second.streams[0], b"z")
    assert second.mark()
    second.close()
    marks = list(struct.iter_unpack("<QQQ", (tmp_path / "marks").read_bytes()))
    assert [mark[1:] for mark in marks] == [(0, 2), (1, 2)]


# Spare directories.


def test_what_was_never_used_comes_back_whole(tmp_path: Path):
    spares = Spares(str(tmp_path), boxes=True)
    homes = [tmp_path / f"{number}.1_master-0" for number in range(6)]
    for home in homes:
        spares.move_in(str(home))
    (homes[1] / "stdout").write_text("printed")
    (homes[2] / "marks").touch()
    (homes[3] / "work/left").touch()
    (homes[4] / "tmp").chmod(0o700)
    (homes[5] / "stderr").unlink()
    (homes[0] / "box/status").write_text("of the one before")
    assert [spares.take_back_all(str(home)) for home in homes] == [True, False, False, False, False, False]
    spares.move_in(str(tmp_path / "7.1_master-0"))
    assert not homes[0].exists()
    assert (tmp_path / "7.1_master-0/box/status").read_text() == ""


def test_spares_are_moved_in_and_empty_ones_come_back(tmp_path: Path):
    spares = Spares(str(tmp_path), boxes=True)
    while spares.furnish():
        pass
    spares.move_in(f"{tmp_path}/1.1_master-0")
    home = tmp_path / "1.1_master-0"
    assert sorted(path.name for path in home.iterdir()) == ["box", "stderr", "stdout", "tmp", "work"]
    assert (home / "box" / "out" / "stderr").is_fifo()
    (home / "work" / "x").touch()
    (home / "box" / "status").write_text('{"exit-code": 0}')
    assert not spares.take_back(f"{home}/work")
    assert spares.take_back(f"{home}/tmp")
    spares.take_back_box(f"{home}/box")
    while spares.furnish():
        pass
    assert not [path for path in tmp_path.glob(".*/box/status") if path.read_text()]
    spares.close()
    assert [path.name for path in tmp_path.iterdir()] == ["1.1_master-0"]


def test_directories_that_the_next_one_will_want_come_back(tmp_path: Path):
    dirs = ("tmp/root", "tmp/root/var", "tmp/root/var/hypertune", "tmp/root/workspace")
    spares = Spares(str(tmp_path), boxes=False)
    first, second, third = (tmp_path / f"{number}.1_master-0" for number in range(3))
    for home in (first, second):
        spares.move_in(str(home))
        spares.lay_out(str(home), dirs)
    (second / "tmp/root/var/hypertune/left").touch()
    made = (first / "tmp/root/var/hypertune").stat().st_ino
    for home in (first, second):
        spares.take_back_laid_out(str(home), dirs)
    assert not (first / "tmp").exists()
    assert (second / "tmp/root/var/hypertune/left").exists()
    spares.move_in(str(third))
    spares.lay_out(str(third), (*dirs, "tmp/root/more"))
    assert (third / "tmp/root/more").is_dir()
    spares.move_in(str(first))
    spares.lay_out(str(first), dirs)
    assert (first / "tmp/root/var/hypertune").stat().st_ino == made
    spares.take_back_laid_out(str(first), dirs)
    spares.close()
    assert {path.name for path in tmp_path.iterdir()} == {home.name for home in (first, second, third)}


CHANGES: dict[str, Callable[[Path], object]] = {
    "mode": lambda tmp: tmp.chmod(0o700),
    "file": lambda tmp: (tmp / "more").touch(),
    "link": lambda tmp: _swap(tmp / "a"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_directories_that_somebody_changed_do_not(tmp_path: Path, change: Callable[[Path], object]):
    spares = Spares(str(tmp_path), boxes=False)
    home = tmp_path / "1.1_master-0"
    spares.move_in(str(home))
    spares.lay_out(str(home), ("tmp/a", "tmp/a/b"))
    change(home / "tmp")
    spares.take_back_laid_out(str(home), ("tmp/a", "tmp/a/b"))
    assert (home / "tmp").exists()


def _swap(path: Path) -> None:
    """A link to the same directory in its place."""
    path.rename(path.parent.parent / "aside")
    path.symlink_to(path.parent.parent / "aside")


def test_only_few_kinds_are_kept(tmp_path: Path):
    spares = Spares(str(tmp_path), boxes=False)
    for number in range(10):
        home, dirs = str(tmp_path / f"{number}.1_master-0"), (f"tmp/{number}",)
        spares.move_in(home)
        spares.lay_out(home, dirs)
        spares.take_back_laid_out(home, dirs)
    assert sorted(path.name for path in tmp_path.glob(".*/*")) == ["6", "7", "8", "9"]


def test_spares_of_an_earlier_keeper_go(tmp_path: Path):
    Spares(str(tmp_path), boxes=False).furnish()
    Spares(str(tmp_path), boxes=False)
    assert list(tmp_path.iterdir()) == []


def test_what_the_service_is_removing_is_not_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The kernel has found the box for us already when the service moves all of it away and begins inside."""
    spares = Spares(str(tmp_path), boxes=True)
    home, gone = tmp_path / "1.1_master-0", tmp_path / "gone_1.1_master-0"
    spares.move_in(str(home))
    (home / "box" / "status").touch()
    rename = os.rename

    def overtaken(source: str, target: str) -> None:
        rename(home, gone)
        rename(source.replace(str(home), str(gone)), target)
        next(tmp_path.glob(".*/out/stdout")).unlink()

    monkeypatch.setattr(os, "rename", overtaken)
    spares.take_back_box(f"{home}/box")
    monkeypatch.undo()
    assert not list(tmp_path.glob(".*/out"))
    spares.move_in(str(tmp_path / "2.1_master-0"))
    assert len(list((tmp_path / "2.1_master-0/box/out").iterdir())) == 2


def test_a_directory_is_in_its_place_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    spares = Spares(str(tmp_path), boxes=True)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "mkfifo", killed)
    with pytest.raises(KeyboardInterrupt):
        spares.move_in(str(tmp_path / "1.1_master-0"))
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".")]


# The channel.


def test_a_long_message_comes_in_parts():
    here, there = socket.socketpair()
    channel, heard = Channel(there), []
    text = b'{"t":"' + b"x" * 3_000_000 + b'"}\n{"t":"y"}\n{"t":'
    with here:
        here.setblocking(False)
        while text:
            with contextlib.suppress(BlockingIOError):
                text = text[here.send(text) :]
            assert channel.receive(heard.append)
        here.sendall(b'"z"}\n')
        while len(heard) < 3:
            assert channel.receive(heard.append)
    assert [len(message["t"]) for message in heard] == [3_000_000, 1, 1]
    channel.close()


# Processes.


def test_a_process_is_named_by_pid_and_start_time():
    mark = f"{os.getpid()}.1/x-0"
    with subprocess.Popen(["cat"], env={"TURNOUT_REPLICA": mark}, stdin=-1, stdout=-1) as child:
        assert child.stdin
        assert child.stdout
        child.stdin.write(b"ready\n")
        child.stdin.flush()
        child.stdout.readline()
        start = processes.start_time(child.pid)
        assert start
        assert processes.marker(child.pid) == mark
        assert processes.marked()[mark] == [child.pid]
        assert processes.open_pidfd(child.pid, start + 1) is None
        pidfd = processes.open_pidfd(child.pid, start)
        assert pidfd is not None
        assert processes.alive(child.pid)
        child.kill()
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
        os.close(pidfd)
        assert not processes.alive(child.pid)
    assert processes.start_time(child.pid) is None
    assert processes.open_pidfd(child.pid, start) is None


def test_whole_trees_end():
    child = subprocess.Popen(["sh", "-c", "(setsid sleep 1000 & wait) & wait"], stdout=subprocess.PIPE)
    while (
        len(processes.children(child.pid)) < 1
        or len(processes.children(processes.children(child.pid)[0])) < 1
    ):
        pass
    (inner,) = processes.children(child.pid)
    (sleep,) = processes.children(inner)
    processes.end_trees([child.pid])
    # The pipe's end comes when the last of them is gone.
    assert child.stdout
    assert child.stdout.read() == b""
    child.stdout.close()
    child.wait()
    # Its descriptors are closed a moment before it counts as gone.
    while processes.alive(sleep):
        pass


# Cgroups.


@pytest.mark.usefixtures("kernel")
def test_a_slot_that_was_limited_limits_nobody_after(tree: Path):
    slots = cgroups.find("keeper-1", -1, -1, str(tree), str(tree / "own"))
    assert slots
    slot = slots.take({"cpu": 1, "memory": 1 << 30, "processes": 100})
    assert slot
    slots.give_back(slot)
    assert slots.take({"cpu": 0, "memory": 0, "processes": 100}) is slot
    assert slot.tracks_only
    limit = tree / "user.slice" / f"turnout-{os.getuid()}" / "keeper-1-0" / "memory.max"
    assert limit.read_text().startswith("max")


# Cgroups of version 2, on a tree of plain files: no machine of ours has their controllers.


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("")
    (tmp_path / "own").write_text("0::/user.slice/app.scope\n")
    (tmp_path / "user.slice").mkdir()
    (tmp_path / "user.slice" / "cgroup.subtree_control").write_text("")
    return tmp_path


FILES = ("cgroup.procs", "cgroup.subtree_control", "cgroup.events", "cgroup.kill", "cpu.max", "memory.max",
         "memory.oom.group", "memory.swap.max", "memory.events", "pids.max")  # fmt: skip


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the files of a cgroup with its directory, as the kernel does."""
    mkdir = os.mkdir

    def make(path: str, mode: int = 0o777) -> None:
        mkdir(path, mode)
        for name in FILES:
            Path(path, name).write_text("populated 0\n" if name == "cgroup.events" else "oom_kill 0\n")

    monkeypatch.setattr(os, "mkdir", make)


@pytest.mark.usefixtures("kernel")
def test_version_2_limits(tree: Path):
    slots = cgroups.find("keeper-1", -1, -1, str(tree), str(tree / "own"))
    assert slots
    assert slots.kind == "cgroups v2"
    place = tree / "user.slice" / f"turnout-{os.getuid()}"
    assert (place / "keeper-1-keeper" / "cgroup.procs").read_text().startswith("0")
    assert "+memory" in (place / "cgroup.subtree_control").read_text()
    slot = slots.take({"cpu": 1.5, "memory": 1 << 30, "processes": 100})
    assert slot
    wrote = {name: (place / "keeper-1-0" / name).read_text().split("\n")[0] for name in FILES}
    assert wrote["cpu.max"].startswith("150000 100000")
    assert wrote["memory.max"].startswith(str(1 << 30))
    assert wrote["memory.swap.max"].startswith("0")
    assert wrote["memory.oom.group"].startswith("1")
    assert wrote["pids.max"].startswith("100")
    assert slot.memory_kills() == 0
    (place / "keeper-1-0" / "memory.events").write_text("oom 3\noom_kill 2\n")
    assert slot.memory_kills() == 2
    assert not slot.end_all()
    (place / "keeper-1-0" / "cgroup.events").write_text("populated 1\n")
    assert slot.end_all()
    assert (place / "keeper-1-0" / "cgroup.kill").read_text().startswith("1")


@pytest.mark.usefixtures("kernel")
def test_version_2_reuses_slots_and_needs_none_for_a_sandbox_without_limits(tree: Path):
    slots = cgroups.find("keeper-1", -1, -1, str(tree), str(tree / "own"))
    assert slots
    assert slots.take({"cpu": 0, "memory": 0, "processes": 100, "sandbox": ["bwrap"]}) is None
    limited = {"cpu": 1, "memory": 0, "processes": 100}
    first, second = slots.take(limited), slots.take(limited)
    assert first
    assert second
    assert {first.number, second.number} == {0, 1}
    slots.give_back(first)
    assert slots.take(limited) is first


@pytest.mark.usefixtures("kernel")
def test_what_a_living_keeper_has_is_not_swept_away(tree: Path):
    """Not even while its own cgroup is empty, because it is in a slot."""
    slots = cgroups.find("keeper-1", -1, -1, str(tree), str(tree / "own"))
    assert slots
    assert slots.take({"cpu": 1, "memory": 0, "processes": 100})
    place = tree / "user.slice" / f"turnout-{os.getuid()}"
    (place / "keeper-0-keeper").mkdir()
    for path in list(place.glob("*/*")):
        path.unlink()
    assert cgroups.find("keeper-2", -1, -1, str(tree), str(tree / "own"))
    names = {path.name for path in place.iterdir() if path.is_dir()}
    assert names == {"keeper-1-keeper", "keeper-1-0", "keeper-2-keeper"}


def test_where_nothing_can_be_written_there_are_no_slots(tmp_path: Path):
    (tmp_path / "own").write_text("4:memory:/x\n2:cpu,cpuacct:/\n1:pids:/\n")
    assert cgroups.find("keeper-1", -1, -1, str(tmp_path / "none"), str(tmp_path / "own")) is None


@pytest.mark.skipif(os.geteuid() != 0 or UNIFIED is None, reason="only root may make cgroups here")
def test_a_process_can_be_born_in_a_cgroup(tmp_path: Path):
    assert UNIFIED
    place = UNIFIED / f"turnout-test-{os.getpid()}"
    place.mkdir()
    cgroup = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    out = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT)
    try:
        argv = ["sh", "-c", "cat /proc/self/cgroup; echo $X; ps -o sid= -p $$"]
        pid = clone_into(cgroup, "/bin/sh", argv, {"X": "told", "PATH": "/bin:/usr/bin"}, {1: out})
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        said = (tmp_path / "out").read_text().split()
        assert f"0::/{place.name}" in said
        assert said[-2:] == ["told", str(pid)]
        with pytest.raises(FileNotFoundError):
            clone_into(cgroup, "/no/such", ["x"], {}, {})
    finally:
        os.close(cgroup)
        os.close(out)
        place.rmdir()


def test_the_start_time_of_a_new_child_is_the_one_that_is_read():
    for _ in range(50):
        began = processes.ticks()
        child = subprocess.Popen(["sleep", "60"])
        try:
            assert processes.start_time_after(began, child.pid) == processes.start_time(child.pid)
        finally:
            child.kill()
            child.wait()
