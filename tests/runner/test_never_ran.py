"""A supervisor that was killed between the journal's `starting` line and the `started` line, without a sandbox.

The next one starts the replica again only if it is certain that the program never ran.
"""

import fcntl
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from turnout.runner.supervisor import procfs
from turnout.runner.supervisor.gang import Gang, Replica
from turnout.runner.supervisor.logs.marks import PlainLog
from turnout.runner.supervisor.logs.sealed_log import LogEncrypters
from turnout.runner.supervisor.recovery.journal import Journal, Line
from turnout.runner.supervisor.recovery.recover import recover
from turnout.runner.supervisor.replicas import spawn as module
from turnout.runner.supervisor.replicas.spares import PENDING, Spares
from turnout.runner.supervisor.replicas.spawn import spawn
from turnout.runner.supervisor.replicas.users import OWN
from turnout.runner.supervisor.supervisor import Supervisor

pytestmark = pytest.mark.usefixtures("files_are_closed")

ATTEMPT = "1000000000000000000.1"
CLAIM = {"a": ATTEMPT, "note": {}, "limit": None, "grace": 1, "log_bytes": 1 << 30, "tells_starting": True}


@pytest.fixture
def attempts(tmp_path: Path) -> Path:
    (tmp_path / "attempts").mkdir()
    return tmp_path / "attempts"


@pytest.fixture
def replica(attempts: Path) -> Replica:
    """With a directory from the spares, and claimed in the journal."""
    claim = CLAIM | {"boot": procfs.boot_id(), "replicas": {"master-0": False}}
    Journal(str(attempts.parent)).append({"claim": claim})
    replica = Gang(ATTEMPT, claim, str(attempts)).replicas["master-0"]
    Spares(str(attempts), sandbox=False).take(replica.directory, OWN)
    replica.log = PlainLog(replica.directory, 1 << 30)
    return replica


def start(replica: Replica, attempts: Path, *argv: str) -> int:
    env = {"PATH": "/usr/bin:/bin", "TURNOUT_REPLICA": replica.key}
    plan = {"argv": list(argv), "env": env, "cwd": "/", "shared": {"maps": {}}}
    return spawn(replica, plan, Journal(str(attempts.parent)))


def start_and_die(replica: Replica, attempts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the `starting` line."""

    def killed(*_: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "_spawn_bare", killed)
        with pytest.raises(KeyboardInterrupt):
            start(replica, attempts, "true")


def recovered(attempts: Path) -> dict[str, list[Line]]:
    """What the next supervisor reports of each attempt that it keeps."""
    listener, other = socket.socketpair()
    with listener, other:
        encrypters = LogEncrypters("none", [], now=False)
        supervisor = Supervisor(str(attempts.parent), str(attempts), listener, None, 1024, False, encrypters)
        recover(supervisor)
        return {attempt: gang.lines for attempt, gang in supervisor.gangs.items()}


def causes(lines: list[Line]) -> list[str]:
    return [line["ended"][3] for line in lines if "ended" in line]


def test_a_process_that_was_never_created_may_be_started_again(
    replica: Replica, attempts: Path, monkeypatch: pytest.MonkeyPatch
):
    start_and_die(replica, attempts, monkeypatch)
    assert recovered(attempts) == {}


def test_a_program_that_ran_and_ended_is_lost(replica: Replica, attempts: Path):
    os.waitpid(start(replica, attempts, "true"), 0)
    assert causes(recovered(attempts)[ATTEMPT]) == ["lost"]


def test_a_program_that_runs_is_adopted(replica: Replica, attempts: Path):
    pid = start(replica, attempts, "sleep", "1000")
    try:
        until = time.monotonic() + 10
        while not procfs.marker(pid) and time.monotonic() < until:
            pass
        lines = recovered(attempts)[ATTEMPT]
        assert [line["started"][2] for line in lines if "started" in line] == [pid]
        assert not causes(lines)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def test_without_the_file_it_may_have_run(replica: Replica, attempts: Path, monkeypatch: pytest.MonkeyPatch):
    start_and_die(replica, attempts, monkeypatch)
    Path(replica.directory, PENDING).unlink()
    assert causes(recovered(attempts)[ATTEMPT]) == ["lost"]


def test_an_older_supervisor_did_not_empty_the_file(replica: Replica, attempts: Path):
    Journal(str(attempts.parent)).append({"starting": [ATTEMPT, "master-0"]})
    assert causes(recovered(attempts)[ATTEMPT]) == ["lost"]


@pytest.mark.parametrize("in_cgroup", [False, True])
def test_the_file_is_empty_before_the_program_runs(
    replica: Replica, attempts: Path, in_cgroup: bool, monkeypatch: pytest.MonkeyPatch
):
    if in_cgroup:  # played: such a process is created by clone3, in any cgroup
        if threading.active_count() > 1:
            pytest.skip(
                "an earlier test left threads: the child of clone3 could deadlock, unlike the supervisor's"
            )
        run = module._run
        monkeypatch.setattr(
            module, "_run", lambda *args, emptied: run(*args, before_exec=lambda: None, emptied=emptied)
        )
    pending = Path(replica.directory, PENDING)
    assert pending.stat().st_size == 1
    os.waitpid(start(replica, attempts, "stat", "-c", "%s", str(pending)), 0)
    assert Path(replica.directory, "stdout").read_text() == "0\n"


def test_a_restart_makes_the_file_again(replica: Replica, attempts: Path):
    os.waitpid(start(replica, attempts, "true"), 0)
    pending = Path(replica.directory, PENDING)
    assert pending.stat().st_size == 0
    Spares(str(attempts), sandbox=False).complete(replica.directory, OWN)
    assert pending.stat().st_size == 1


def test_a_fifo_in_its_place_blocks_nothing(replica: Replica, attempts: Path):
    pending = Path(replica.directory, PENDING)
    pending.unlink()
    os.mkfifo(pending)
    Spares(str(attempts), sandbox=False).complete(replica.directory, OWN)
    os.waitpid(start(replica, attempts, "true"), 0)
    assert not replica.pending_file


SUPERVISOR = """
import fcntl, os, sys
from turnout.runner.supervisor.replicas.clone import clone_into

lock, go = os.open(sys.argv[1], os.O_RDWR | os.O_CLOEXEC), int(sys.argv[2])
fcntl.flock(lock, fcntl.LOCK_EX)

def wait():
    os.write(1, b"%d\\n" % os.getpid())
    os.read(go, 1)

clone_into(-1, "/bin/sleep", ["sleep", "1000"], {}, {}, wait)
"""


def test_a_child_on_the_way_to_its_exec_holds_the_lock(tmp_path: Path):
    """So the next supervisor cannot look at the file too early."""
    (tmp_path / "lock").touch()
    lock = os.open(tmp_path / "lock", os.O_RDWR)
    go_read, go = os.pipe()
    argv = [sys.executable, "-c", SUPERVISOR, str(tmp_path / "lock"), str(go_read)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, pass_fds=(go_read,)) as supervisor:
        assert supervisor.stdout
        child = int(supervisor.stdout.readline())
        supervisor.kill()
    with pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.write(go, b"x")
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert procfs.alive(child)
    os.kill(child, 9)
