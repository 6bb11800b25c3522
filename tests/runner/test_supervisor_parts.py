"""Unit tests of the supervisor's parts."""

import contextlib
import errno
import itertools
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from turnout.runner.supervisor import procfs
from turnout.runner.supervisor.channel import MessageChannel
from turnout.runner.supervisor.logs.marks import PlainLog
from turnout.runner.supervisor.loop import Loop
from turnout.runner.supervisor.recovery.journal import Journal
from turnout.runner.supervisor.replicas import batches, cgroups, clone
from turnout.runner.supervisor.replicas.spare_maker import SpareMaker
from turnout.runner.supervisor.replicas.spares import Spares
from turnout.runner.supervisor.replicas.users import OWN

pytestmark = pytest.mark.usefixtures("files_are_closed")

UNIFIED = next(
    (p for p in map(Path, ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")) if (p / "cgroup.procs").exists()),
    None,
)


# The journal.


def test_the_journal_returns_what_was_written(tmp_path: Path):
    Journal(str(tmp_path)).append({"boot": "a"}, {"tomb": "1.1"})
    assert list(Journal(str(tmp_path)).read()) == [{"boot": "a"}, {"tomb": "1.1"}]


@pytest.mark.parametrize(
    "torn", ['{"started": ["1.1"', '{"tomb": "2.1"}', '{"tomb":"3.1","c":"0000', "\0\0\0"]
)
def test_an_incomplete_last_line_is_cut_off(tmp_path: Path, torn: str):
    Journal(str(tmp_path)).append({"tomb": "1.1"})
    with (tmp_path / "journal").open("a") as file:
        file.write(torn)
    again = Journal(str(tmp_path))
    assert list(again.read()) == [{"tomb": "1.1"}]
    again.append({"tomb": "4.1"})
    assert list(Journal(str(tmp_path)).read()) == [{"tomb": "1.1"}, {"tomb": "4.1"}]


def test_a_last_line_without_newline_is_complete(tmp_path: Path):
    Journal(str(tmp_path)).append({"tomb": "1.1"})
    file = tmp_path / "journal"
    file.write_bytes(file.read_bytes()[:-1])
    again = Journal(str(tmp_path))
    assert list(again.read()) == [{"tomb": "1.1"}]
    again.append({"tomb": "2.1"})
    assert list(Journal(str(tmp_path)).read()) == [{"tomb": "1.1"}, {"tomb": "2.1"}]


def test_lines_of_older_versions_have_no_checksum(tmp_path: Path):
    (tmp_path / "journal").write_text('{"boot":"a"}\n{"tomb":"1.1"}\n')
    old = Journal(str(tmp_path))
    assert list(old.read()) == [{"boot": "a"}, {"tomb": "1.1"}]
    old.append({"tomb": "2.1"})
    assert [json.loads(line)["tomb"] for line in (tmp_path / "journal").read_text().splitlines()[1:]] == [
        "1.1",
        "2.1",
    ]


@pytest.mark.parametrize(
    "damage", ["garbage\n", "\0\0\0\n", '{"tomb":"7.1","c":"00000000"}\n', "[" * 100_000 + "\n"]
)
def test_a_damaged_line_is_set_aside(tmp_path: Path, damage: str):
    Journal(str(tmp_path)).append({"tomb": "1.1"})
    with (tmp_path / "journal").open("a") as file:
        file.write(damage)
    Journal(str(tmp_path)).append({"tomb": "3.1"})
    again = Journal(str(tmp_path))
    assert list(again.read()) == [{"tomb": "1.1"}, {"tomb": "3.1"}]
    assert again.bad == [damage.encode()]
    assert (tmp_path / "journal.bad").read_text() == damage


@pytest.mark.parametrize("between", [b"", b"X", b"{", b'{"'])
def test_lines_that_ran_together_are_both_read(tmp_path: Path, between: bytes):
    lines = [{"tomb": "1.1"}, {"claim": {"a": "2.1", "note": {"x": {}}}}, {"tomb": "3.1"}]
    Journal(str(tmp_path)).append(*lines)
    file = tmp_path / "journal"
    file.write_bytes(file.read_bytes().replace(b"\n", between, 1))
    assert list(Journal(str(tmp_path)).read()) == lines


def test_compaction_keeps_only_what_is_needed(tmp_path: Path):
    journal = Journal(str(tmp_path))
    for number in range(2001):
        journal.append({"tomb": str(number)})
    assert journal.worth_compacting(lambda: 10)
    assert not journal.worth_compacting(lambda: 1000)
    journal.rewrite([{"tomb": "5"}])
    journal.append({"forgotten": "5"})
    assert list(Journal(str(tmp_path)).read()) == [{"tomb": "5"}, {"forgotten": "5"}]
    assert (tmp_path / "journal").stat().st_mode & 0o777 == 0o600


# Marks.


def test_marks_have_different_times_even_if_the_clock_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("time.time_ns", lambda: 1_000)
    log = PlainLog(str(tmp_path), 1 << 30)
    for _ in range(3):
        os.write(log.streams[0], b"x")
        assert log.mark()
    assert not log.mark()
    log.close()
    marks = list(struct.iter_unpack("<QQQ", (tmp_path / "marks").read_bytes()))
    assert [size for _, size, _ in marks] == [1, 2, 3]
    assert all(later[0] - earlier[0] == 1_000_000 for earlier, later in itertools.pairwise(marks))


def test_marks_continue_after_a_restart(tmp_path: Path):
    first = PlainLog(str(tmp_path), 1 << 30)
    os.write(first.streams[1], b"xy")
    first.mark()
    first.close()
    with (tmp_path / "marks").open("ab") as file:
        file.write(b"torn")
    second = PlainLog(str(tmp_path), 1 << 30)
    assert not second.mark()
    os.write(second.streams[0], b"z")
    assert second.mark()
    second.close()
    marks = list(struct.iter_unpack("<QQQ", (tmp_path / "marks").read_bytes()))
    assert [mark[1:] for mark in marks] == [(0, 2), (1, 2)]


# Spare directories.


def test_no_directory_is_used_twice(tmp_path: Path):
    spares = Spares(str(tmp_path), sandbox=True)
    seen: set[int] = set()
    for number in range(40):
        home = tmp_path / f"{number}.1_master-0"
        spares.take(str(home), OWN)
        mine = {path.lstat().st_ino for path in (home, *home.rglob("*"))}
        assert not mine & seen
        seen |= mine
        spares.discard(str(home), logs=number % 2 == 0)
        while spares.prepare():
            pass


def test_a_spare_is_moved_in_and_later_out(tmp_path: Path):
    spares = Spares(str(tmp_path), sandbox=True)
    while spares.prepare():
        pass
    home = tmp_path / "1.1_master-0"
    spares.take(str(home), OWN)
    assert sorted(path.name for path in home.iterdir()) == ["space", "stderr", "stdout"]
    assert (home / "space/box/out/stderr").is_fifo()
    (home / "space/work/x").touch()
    spares.discard(str(home), logs=True)
    assert sorted(path.name for path in home.iterdir()) == ["stderr", "stdout"]
    assert [path.name for path in tmp_path.glob(".gone/*/work/*")] == ["x"]
    spares.discard(str(home), logs=False)
    assert not home.exists()
    spares.close()
    assert [path.name for path in tmp_path.iterdir()] == [".gone"]


def test_spares_of_an_earlier_supervisor_are_removed(tmp_path: Path):
    Spares(str(tmp_path), sandbox=False).prepare()
    assert list((tmp_path / ".new").rglob("space"))
    Spares(str(tmp_path), sandbox=False)
    assert not list((tmp_path / ".new").rglob("space"))


def test_spares_are_made_elsewhere_when_it_becomes_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    times = itertools.count(0, 1.0)
    monkeypatch.setattr(batches, "_spread_directories", lambda _: True)
    monkeypatch.setattr(batches.time, "thread_time", lambda: next(times))
    spares, homes = Spares(str(tmp_path), sandbox=False), itertools.count()

    def make(count: int, seconds: float) -> set[Path]:
        nonlocal times
        times = itertools.count(0, seconds)
        for number in itertools.islice(homes, count):
            spares.take(str(tmp_path / f"{number}.1_master-0"), OWN)
        return set((tmp_path / ".new").iterdir())

    first = make(16, 1)
    assert make(4, 1.5) == first
    slow = make(4, 9)
    assert len(slow) == 2
    assert make(8, 1) == slow - first


def test_another_process_makes_spares_until_it_is_killed(tmp_path: Path):
    spares, loop, pids = Spares(str(tmp_path), sandbox=True), Loop(), list[int]()
    spares.use_maker(loop, pids.append)
    assert not spares.prepare()
    while len(list(tmp_path.glob(".new/**/box/hosts"))) < 32:
        loop.run_once(lambda: False, lambda: False)
    os.kill(pids[0], signal.SIGKILL)
    os.waitpid(pids[0], 0)
    loop.run_once(lambda: False, lambda: False)
    for number in range(40):
        spares.take(str(tmp_path / f"{number}.1_master-0"), OWN)
    assert len({path.stat().st_ino for path in tmp_path.glob("*.1_master-0/space/box/out/stderr")}) == 40
    assert not spares.prepare()
    assert len(pids) == 1
    spares.close()


def test_spares_that_were_made_before_a_failure_are_used():
    loop, pids, made, errors = Loop(), list[int](), list[str](), list[OSError]()
    numbers = itertools.count()

    def make(user: int) -> str:
        if (number := next(numbers)) == 11:
            raise OSError(errno.ENOSPC, "full")
        return f"spare {number} of {user}"

    maker = SpareMaker(loop, pids.append, make, lambda user, path: made.append(path), errors.append)
    maker.order(7, 20)
    while not errors:
        loop.run_once(lambda: False, lambda: False)
    os.waitpid(pids[0], 0)
    assert made == [f"spare {number} of 7" for number in range(11)]
    assert [error.errno for error in errors] == [errno.ENOSPC]
    assert not maker.running


def test_a_directory_appears_complete_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    spares = Spares(str(tmp_path), sandbox=True)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "mkfifo", killed)
    with pytest.raises(KeyboardInterrupt):
        spares.take(str(tmp_path / "1.1_master-0"), OWN)
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".")]


# The channel.


def test_a_long_message_arrives_in_parts():
    here, there = socket.socketpair()
    channel, received = MessageChannel(there), []
    text = b'{"t":"' + b"x" * 3_000_000 + b'"}\n{"t":"y"}\n{"t":'
    with here:
        here.setblocking(False)
        while text:
            with contextlib.suppress(BlockingIOError):
                text = text[here.send(text) :]
            assert channel.receive(received.append)
        here.sendall(b'"z"}\n')
        while len(received) < 3:
            assert channel.receive(received.append)
    assert [len(message["t"]) for message in received] == [3_000_000, 1, 1]
    channel.close()


def test_a_malformed_message_does_not_affect_others():
    here, there = socket.socketpair()
    channel, received = MessageChannel(there), []
    with here:
        here.sendall(b'{"t":"x"}\n{"t":\n\n\xff\n{"t":"y"}\n')
        assert channel.receive(received.append)
    assert [message["t"] for message in received] == ["x", "y"]
    channel.close()


# Processes.


def test_a_process_is_identified_by_pid_and_start_time():
    mark = f"{os.getpid()}.1/x-0"
    with subprocess.Popen(["cat"], env={"TURNOUT_REPLICA": mark}, stdin=-1, stdout=-1) as child:
        assert child.stdin
        assert child.stdout
        child.stdin.write(b"ready\n")
        child.stdin.flush()
        child.stdout.readline()
        start = procfs.start_time(child.pid)
        assert start
        assert procfs.marker(child.pid) == mark
        assert procfs.marked_processes()[mark] == [child.pid]
        assert procfs.open_pidfd(child.pid, start + 1) is None
        pidfd = procfs.open_pidfd(child.pid, start)
        assert pidfd is not None
        assert procfs.alive(child.pid)
        child.kill()
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
        os.close(pidfd)
        assert not procfs.alive(child.pid)
    assert procfs.start_time(child.pid) is None
    assert procfs.open_pidfd(child.pid, start) is None


def test_kills_whole_trees():
    child = subprocess.Popen(["sh", "-c", "(setsid sleep 1000 & wait) & wait"], stdout=subprocess.PIPE)
    while len(procfs.children(child.pid)) < 1 or len(procfs.children(procfs.children(child.pid)[0])) < 1:
        pass
    (inner,) = procfs.children(child.pid)
    (sleep,) = procfs.children(inner)
    procfs.kill_trees([child.pid])
    # The pipe ends when the last of them is gone.
    assert child.stdout
    assert child.stdout.read() == b""
    child.stdout.close()
    child.wait()
    # Its descriptors are closed a moment before it is gone.
    while procfs.alive(sleep):
        pass


# Cgroups.


@pytest.mark.usefixtures("kernel")
def test_a_reused_slot_has_no_old_limits(tree: Path):
    slots = cgroups.set_up("supervisor-1", -1, -1, str(tree), str(tree / "own"))
    assert slots
    slot = slots.acquire({"millicores": 1000, "memory": 1 << 30, "processes": 100})
    assert slot
    slots.release(slot)
    assert slots.acquire({"millicores": 0, "memory": 0, "processes": 100}) is slot
    assert slot.tracks_only
    limit = tree / "user.slice" / f"turnout-{os.getuid()}" / "supervisor-1-0" / "memory.max"
    assert limit.read_text().startswith("max")


# Cgroups of version 2, on a tree of plain files, because no test machine has their controllers.


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
    slots = cgroups.set_up("supervisor-1", -1, -1, str(tree), str(tree / "own"))
    assert slots
    assert slots.kind == "cgroups v2"
    place = tree / "user.slice" / f"turnout-{os.getuid()}"
    assert (place / "supervisor-1-keeper" / "cgroup.procs").read_text().startswith("0")
    assert "+memory" in (place / "cgroup.subtree_control").read_text()
    slot = slots.acquire({"millicores": 1500, "memory": 1 << 30, "processes": 100})
    assert slot
    wrote = {name: (place / "supervisor-1-0" / name).read_text().split("\n")[0] for name in FILES}
    assert wrote["cpu.max"].startswith("150000 100000")
    assert wrote["memory.max"].startswith(str(1 << 30))
    assert wrote["memory.swap.max"].startswith("0")
    assert wrote["memory.oom.group"].startswith("1")
    assert wrote["pids.max"].startswith("100")
    assert slot.memory_kills() == 0
    (place / "supervisor-1-0" / "memory.events").write_text("oom 3\noom_kill 2\n")
    assert slot.memory_kills() == 2
    assert not slot.kill_all()
    (place / "supervisor-1-0" / "cgroup.events").write_text("populated 1\n")
    assert slot.kill_all()
    assert (place / "supervisor-1-0" / "cgroup.kill").read_text().startswith("1")


@pytest.mark.usefixtures("kernel")
def test_version_2_reuses_slots_and_needs_none_for_a_sandbox_without_limits(tree: Path):
    slots = cgroups.set_up("supervisor-1", -1, -1, str(tree), str(tree / "own"))
    assert slots
    assert slots.acquire({"millicores": 0, "memory": 0, "processes": 100, "sandbox": ["bwrap"]}) is None
    limited = {"millicores": 1000, "memory": 0, "processes": 100}
    first, second = slots.acquire(limited), slots.acquire(limited)
    assert first
    assert second
    assert {first.number, second.number} == {0, 1}
    slots.release(first)
    assert slots.acquire(limited) is first


@pytest.mark.usefixtures("kernel")
def test_cgroups_of_a_running_supervisor_are_kept(tree: Path):
    """Not even while its own cgroup is empty because it is in a slot."""
    slots = cgroups.set_up("supervisor-1", -1, -1, str(tree), str(tree / "own"))
    assert slots
    assert slots.acquire({"millicores": 1000, "memory": 0, "processes": 100})
    place = tree / "user.slice" / f"turnout-{os.getuid()}"
    (place / "supervisor-0-keeper").mkdir()
    for path in list(place.glob("*/*")):
        path.unlink()
    assert cgroups.set_up("supervisor-2", -1, -1, str(tree), str(tree / "own"))
    names = {path.name for path in place.iterdir() if path.is_dir()}
    assert names == {"supervisor-1-keeper", "supervisor-1-0", "supervisor-2-keeper"}


def test_no_slots_where_cgroups_are_not_writable(tmp_path: Path):
    (tmp_path / "own").write_text("4:memory:/x\n2:cpu,cpuacct:/\n1:pids:/\n")
    assert cgroups.set_up("supervisor-1", -1, -1, str(tmp_path / "none"), str(tmp_path / "own")) is None


# A process of its own, because clone3 in a process with threads, such as the tests', can deadlock the child.
IN_CGROUP = """
import os, sys
sys.path.insert(0, sys.argv[1])
from supervisor.replicas.clone import clone_into
cgroup = os.open(sys.argv[2], os.O_RDONLY | os.O_DIRECTORY)
argv = ["sh", "-c", "cat /proc/self/cgroup; echo $X; ps -o sid= -p $$"]
pid = clone_into(cgroup, "/bin/sh", argv, {"X": "told", "PATH": "/bin:/usr/bin"}, {1: 1})
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
try:
    clone_into(cgroup, "/no/such", ["x"], {}, {})
except FileNotFoundError:
    print(pid)
"""


@pytest.mark.skipif(os.geteuid() != 0 or UNIFIED is None, reason="only root may make cgroups here")
def test_a_process_is_created_in_a_cgroup():
    assert UNIFIED
    place = UNIFIED / f"turnout-test-{os.getpid()}"
    place.mkdir()
    runner = Path(clone.__file__).parents[2]
    try:
        argv = [sys.executable, "-c", IN_CGROUP, str(runner), str(place)]
        output = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout.split()
        assert f"0::/{place.name}" in output
        assert output[-3:] == ["told", output[-1], output[-1]], "it leads a session of its own"
    finally:
        place.rmdir()


def test_the_start_time_of_a_new_child():
    for _ in range(50):
        began = procfs.now_in_ticks()
        child = subprocess.Popen(["sleep", "60"])
        try:
            assert procfs.start_time_after(began, child.pid) == procfs.start_time(child.pid)
        finally:
            child.kill()
            child.wait()
