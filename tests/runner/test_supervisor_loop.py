"""The supervisor's loop: long timers, cancelled timers, and callbacks that fail."""

import gc
import os
import signal
import socket
import subprocess
import time
import weakref
from pathlib import Path

import pytest

from turnout.runner.supervisor.channel import MessageChannel
from turnout.runner.supervisor.gang import EXIT, Gang, Replica
from turnout.runner.supervisor.logs.sealed_log import LogEncrypters
from turnout.runner.supervisor.loop import Loop
from turnout.runner.supervisor.replicas.processes import ReplicaProcesses
from turnout.runner.supervisor.supervisor import Supervisor

DAY = 86400.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def nothing() -> bool:
    return False


def fail() -> None:
    raise ValueError("of the callback")


@pytest.mark.parametrize("days", [24.8, 25, 400, 1e9])
def test_a_timer_can_be_far_in_the_future(days: float):
    clock, called = Clock(), []
    loop = Loop(clock)
    loop.call_later(days * DAY, lambda: called.append("late"))
    read, write = os.pipe()
    loop.add(read, lambda: called.append(os.read(read, 1)))
    os.write(write, b"x")
    loop.run_once(nothing, nothing)
    assert called == [b"x"]
    clock.now += days * DAY
    loop.run_once(nothing, nothing)
    assert called == [b"x", "late"]
    os.close(read)
    os.close(write)


def test_a_cancelled_timer_is_not_called_and_releases_its_callback():
    clock, called = Clock(), []
    loop = Loop(clock)

    class Held:
        def then(self) -> None:
            called.append("held")

    held = Held()
    gone = weakref.ref(held)
    timer = loop.call_later(5, held.then)
    loop.call_later(6, lambda: called.append("other"))
    timer.cancel()
    timer.cancel()
    del held
    gc.collect()
    assert gone() is None
    clock.now += 10
    loop.run_once(nothing, nothing)
    assert called == ["other"]
    assert loop.timers == 0


def test_cancelled_timers_are_removed():
    loop = Loop(Clock())
    kept = loop.call_later(7 * DAY, lambda: None)
    for _ in range(10_000):
        loop.call_later(7 * DAY, lambda: None).cancel()
    assert loop.timers == 1
    assert len(loop._timers) < 200
    assert kept.callback


def test_a_failing_callback_does_not_affect_others(capfd: pytest.CaptureFixture[str]):
    clock, called = Clock(), []
    loop = Loop(clock)
    bad, good = os.pipe(), os.pipe()
    loop.add(bad[0], fail)
    loop.add(good[0], lambda: called.append(os.read(good[0], 1)))
    for _, write in (bad, good):
        os.write(write, b"x")
    loop.call_later(0, fail)
    loop.call_later(0, lambda: called.append("timer"))
    loop.run_once(nothing, nothing)
    assert called == [b"x", "timer"]
    assert capfd.readouterr().err.count("ValueError: of the callback") == 2
    # The data is still there, but the callback is called again only after a while.
    loop.call_later(0, lambda: None)
    loop.run_once(nothing, nothing)
    assert not capfd.readouterr().err
    clock.now += 2
    loop.run_once(nothing, nothing)
    loop.run_once(nothing, nothing)
    assert capfd.readouterr().err.count("ValueError: of the callback") == 1
    for fd in (*bad, *good):
        os.close(fd)


def test_a_callback_that_closes_its_file_and_fails(capfd: pytest.CaptureFixture[str]):
    clock = Clock()
    loop = Loop(clock)
    bad, good = os.pipe(), os.pipe()

    def close_and_fail() -> None:
        os.close(bad[0])
        fail()

    loop.add(bad[0], close_and_fail)
    loop.add(good[0], lambda: called.append(os.read(good[0], 1)))
    called: list[bytes] = []
    for _, write in (bad, good):
        os.write(write, b"x")
    loop.run_once(nothing, nothing)
    assert called == [b"x"]
    assert "is not watched any more" in capfd.readouterr().err
    clock.now += 2
    loop.call_later(0, lambda: None)
    loop.run_once(nothing, nothing)
    loop.remove(bad[0])
    for fd in (bad[1], *good):
        os.close(fd)


@pytest.mark.parametrize("what", ["flush", "modify", "catch_up"])
def test_an_internal_failure_does_not_end_the_supervisor(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    """The supervisor disconnects the service, which normally connects again. Here it does not, and the supervisor
    exits.
    """
    (tmp_path / "attempts").mkdir()
    failures: list[str] = []

    def failing(*_: object) -> bool:
        failures.append(what)
        if what == "catch_up":
            monkeypatch.undo()
        raise ValueError(f"of {what}")

    before = signal.getsignal(signal.SIGCHLD)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as service:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        encrypters = LogEncrypters("none", [], now=False)
        supervisor = Supervisor(
            str(tmp_path), str(tmp_path / "attempts"), listener, None, 1024, False, encrypters
        )
        if what == "catch_up":
            monkeypatch.setattr(supervisor.journal, what, failing)
        else:
            service.connect(str(tmp_path / "socket"))
            supervisor._connection.accept()
            # Otherwise `modify` is not called.
            supervisor._connection._writing = what == "modify"
            monkeypatch.setattr(MessageChannel if what == "flush" else Loop, what, failing)
        try:
            supervisor.run()
        finally:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, before)
        if what != "catch_up":
            assert service.recv(1) == b"", "it is disconnected"
    assert failures
    assert f"ValueError: of {what}" in capfd.readouterr().err


def test_an_ended_replica_is_not_kept_in_memory_by_its_time_limit(tmp_path: Path):
    (tmp_path / "attempts").mkdir()
    listener, other = socket.socketpair()
    with listener, other:
        encrypters = LogEncrypters("none", [], now=False)
        supervisor = Supervisor(
            str(tmp_path), str(tmp_path / "attempts"), listener, None, 1024, False, encrypters
        )
        claim = {"limit": 7 * DAY, "grace": 1e9, "log_bytes": 1, "replicas": {"master-0": False}}
        gang = supervisor.gangs["1.1"] = Gang("1.1", claim, supervisor.attempts)
        replica = gang.replicas["master-0"]
        supervisor._watch_limits(replica)
        supervisor._processes.stop(replica, "stopped", 1 << 62)
        assert supervisor.loop.timers == 2
        supervisor.end(replica, EXIT, 0)
        supervisor._forget("1.1", keep_workspace=True)
        gone = weakref.ref(replica)
        del replica, gang
        gc.collect()
        assert gone() is None
        assert supervisor.loop.timers == 0


def test_a_clock_that_is_set_back_does_not_delay_a_kill(monkeypatch: pytest.MonkeyPatch):
    clock = Clock()
    loop = Loop(clock)

    def finish(replica: Replica, cause: str, message: str = "", at: int = 0) -> None:
        raise AssertionError("no end is expected here")

    processes = ReplicaProcesses(loop, finish)
    gang = Gang("1.1", {"limit": None, "grace": 1, "log_bytes": 1, "replicas": {"master-0": False}}, "/none")
    replica = gang.replicas["master-0"]
    deaf = ["sh", "-c", "trap '' TERM; echo on; while :; do sleep 0.01; done"]
    with subprocess.Popen(deaf, stdout=-1, start_new_session=True) as child:
        assert child.stdout
        child.stdout.readline()
        replica.pid = child.pid
        processes.stop(replica, "stopped", clock.now + 5)
        monkeypatch.setattr(time, "time", lambda: 0.0)
        monkeypatch.setattr(time, "time_ns", lambda: 0)
        loop.call_later(0, lambda: None)
        loop.run_once(nothing, nothing)
        assert child.poll() is None
        clock.now += 5
        loop.run_once(nothing, nothing)
        assert child.wait() == -signal.SIGKILL


def test_reported_times_of_a_gang_never_go_back(monkeypatch: pytest.MonkeyPatch):
    gang = Gang("1.1", {"limit": None, "grace": 1, "log_bytes": 1, "replicas": {}}, "/none")
    first = gang.timestamp()
    monkeypatch.setattr(time, "time_ns", lambda: 5)
    assert gang.timestamp() == first
    assert gang.timestamp(7) == first
    assert gang.timestamp(first + 1) == first + 1
