"""What a runner does when the service refuses it, breaks connections, or is away."""

import hashlib
import os
import random
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.runner.node.conftest import RunnerProcess, Start
from tests.runner.node.fake_gateway import FakeGateway
from tests.runner.node.test_program import is_alive, shell, wait_until_gone


def test_a_fenced_runner_runs_nothing(
    gateway: FakeGateway, start_runner: Start, tmp_path: Path, scratch: Path
):
    gateway.instance = "another runner"
    gateway.plan = shell(f"touch {tmp_path}/ran")
    runner = start_runner()
    assert runner.wait() == 0
    assert not (tmp_path / "ran").exists()
    assert not gateway.calls
    assert "another runner holds this replica" in runner.printed
    assert not list(scratch.iterdir())


def test_a_runner_that_is_fenced_later_kills_its_program(gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell("trap '' TERM; while :; do sleep 0.1; done", grace=60)
    runner = start_runner()
    pid = gateway.wait_for(lambda: gateway.started)[0]["pid"]
    gateway.instance = "another runner"
    assert runner.wait() == 0
    assert not is_alive(pid)
    assert not gateway.ended


@pytest.mark.parametrize("status", [404, 410])
def test_without_its_attempt_the_program_ends(
    status: int, gateway: FakeGateway, start_runner: Start, scratch: Path
):
    gateway.plan = shell("trap 'exit 6' TERM; while :; do sleep 0.1; done", grace=20)
    runner = start_runner()
    gateway.wait_for(lambda: gateway.started)
    gateway.status = status
    assert runner.wait() == 6
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("status", [400, 401, 413])
def test_a_refused_runner_gives_up(status: int, gateway: FakeGateway, start_runner: Start):
    gateway.status = status
    runner = start_runner()
    assert runner.wait() == 75
    assert f"the service refuses `claim` with {status}" in runner.printed
    assert "as the test wants it" in runner.printed


def test_arrive_gives_up(gateway: FakeGateway, start_runner: Start, scratch: Path):
    gateway.all_arrived = False
    gateway.plan = shell("echo never")
    runner = start_runner()
    gateway.wait_for(lambda: gateway.arrival)
    with gateway.changed:
        gateway.give_up = "worker-1 never came"
        gateway.changed.notify_all()
    assert runner.wait() == 0
    assert "the service gives up: worker-1 never came" in runner.printed
    assert not gateway.started
    assert not gateway.ended
    assert not list(scratch.iterdir())


def test_arrive_is_repeated_until_all_are_there(gateway: FakeGateway, start_runner: Start):
    gateway.all_arrived = False
    gateway.plan = shell("echo now")
    runner = start_runner()
    gateway.wait_for(lambda: len(gateway.named("arrive")) >= 2)
    gateway.all_arrived = True
    assert runner.finish() == 0
    assert bytes(gateway.logs[0]) == b"now\n"


def test_a_runner_waits_for_a_service_that_is_not_there_yet(gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell("exit 3")
    gateway.go_away()
    runner = start_runner()
    until_printed(runner, "the service cannot be reached")
    gateway.come_back()
    assert runner.finish() == 3
    assert "the service can be reached again" in runner.printed


def until_printed(runner: RunnerProcess, text: str) -> None:
    until = time.monotonic() + 20
    while text not in runner.printed:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_runner_without_a_service_gives_up(gateway: FakeGateway, start_runner: Start):
    gateway.go_away()
    runner = start_runner(TURNOUT_PATIENCE="0.5")
    assert runner.wait() == 75
    assert "the service did not take `claim`" in runner.printed


def test_patience_ends_the_program_too(gateway: FakeGateway, start_runner: Start, scratch: Path):
    seen = scratch.parent / "seen"
    gateway.plan = shell(
        f"until [ -e {seen} ]; do sleep 0.05; done; echo unsent; while :; do sleep 0.1; done", grace=5
    )
    gateway.fault = lambda name, count: "before" if name == "tell" else ""
    runner = start_runner(TURNOUT_PATIENCE="1")
    pid = gateway.wait_for(lambda: gateway.started)[0]["pid"]
    seen.touch()
    assert runner.wait() == 75
    assert not is_alive(pid)
    # What the service never got stays on the node.
    [home] = scratch.iterdir()
    assert (home / "stdout").read_text() == "unsent\n"


@pytest.mark.parametrize("fault", ["before", "after", "half", "503"])
def test_every_second_call_fails(fault: str, gateway: FakeGateway, start_runner: Start):
    gateway.fault = lambda name, count: fault if count % 2 else ""
    gateway.plan = shell("for i in 1 2 3 4 5; do echo out $i; echo err $i >&2; sleep 0.05; done; exit 9")
    runner = start_runner()
    end = runner.wait_for_end()
    assert end["code"] == 9
    assert bytes(gateway.logs[0]) == b"".join(b"out %d\n" % i for i in range(1, 6))
    assert bytes(gateway.logs[1]) == b"".join(b"err %d\n" % i for i in range(1, 6))
    assert len(gateway.started) == len(gateway.ended) == 1
    assert runner.finish() == 9


def test_a_program_that_ends_while_the_service_is_away_is_reported(
    gateway: FakeGateway, start_runner: Start, tmp_path: Path, scratch: Path
):
    gateway.plan = shell(
        f"echo before; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; seq 100000; exit 4"
    )
    runner = start_runner()
    gateway.wait_for(lambda: gateway.logs[0])
    gateway.go_away()
    (tmp_path / "go").touch()
    wait_until_gone(gateway.started[0]["pid"])
    [home] = scratch.iterdir()
    gateway.come_back()
    end = runner.wait_for_end()
    assert (end["cause"], end["code"]) == ("exit", 4)
    assert bytes(gateway.logs[0]) == b"before\n" + b"".join(b"%d\n" % i for i in range(1, 100001))
    assert home.exists()
    assert runner.finish() == 4


@pytest.mark.slow
def test_a_service_that_is_away_for_an_hour(gateway: FakeGateway, start_runner: Start, archive: Path):
    """A second here is ten minutes: of the runner's clock for calls, which decides on pauses, patience and time-outs.

    The program's own clock is not scaled: it prints all the time, and ends in the middle of the hour.
    """
    gateway.plan = shell(
        "echo before; i=0; while [ $i -lt 300 ]; do echo $i; i=$((i + 1)); sleep 0.01; done; exit 4"
    )
    scaled = SCALED.format(archive=str(archive), scale=600)
    runner = start_runner(python=sys.executable, options=("-c", scaled), TURNOUT_PATIENCE="86400")
    gateway.wait_for(lambda: gateway.logs[0])
    gateway.go_away()
    time.sleep(6)
    assert runner.process.poll() is None
    gateway.come_back()
    end = runner.wait_for_end()
    assert (end["cause"], end["code"]) == ("exit", 4)
    assert bytes(gateway.logs[0]) == b"before\n" + b"".join(b"%d\n" % i for i in range(300))
    assert len(gateway.started) == len(gateway.ended) == 1
    assert runner.finish() == 4


# Only what the module of the calls sees of time is scaled. Its sockets wait by the true clock.
SCALED = """
import sys, time, types
sys.path.insert(0, {archive!r})
from runner import connection

class Hurried(type(connection.threading.Event())):
    def wait(self, timeout=None):
        return super().wait(timeout and timeout / {scale})

connection.threading = types.SimpleNamespace(**{{**vars(connection.threading), "Event": Hurried}})
connection.time = types.SimpleNamespace(
    monotonic=lambda: time.monotonic() * {scale}, sleep=lambda seconds: time.sleep(seconds / {scale})
)
sys.argv = sys.argv[1:]
import runpy
runpy.run_module("runner", run_name="__main__")
"""


def test_a_signal_while_the_service_is_away_is_reported_if_it_comes_back(
    gateway: FakeGateway, start_runner: Start
):
    gateway.plan = shell("trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done")
    runner = start_runner()
    gateway.wait_for(lambda: gateway.logs[0])
    gateway.go_away()
    os.kill(runner.pid, signal.SIGTERM)
    wait_until_gone(gateway.started[0]["pid"])
    gateway.come_back()
    assert runner.wait() == 7
    assert gateway.ended[0]["cause"] == "terminated"
    assert bytes(gateway.logs[0]) == b"ready\nbye\n"


def test_an_order_that_comes_twice_is_obeyed_once(gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell("trap 'echo term' TERM; echo ready; sleep 2 & wait; wait; exit 0")
    runner = start_runner()
    gateway.wait_for(lambda: gateway.logs[0])
    gateway.order("stop", grace=20)
    gateway.order("stop", grace=20)
    gateway.order("an order of a newer service")
    runner.wait_for_end()
    assert bytes(gateway.logs[0]) == b"ready\nterm\n"


# TLS.


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("tls")
    subject = ["-subj", "/CN=somebody", "-days", "2", "-nodes", "-newkey", "rsa:2048"]
    files = ["-keyout", str(directory / "key"), "-out", str(directory / "certificate")]
    subprocess.run(["openssl", "req", "-x509", *subject, *files], check=True, capture_output=True)
    return directory / "certificate", directory / "key"


def fingerprint(certificate: Path) -> str:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.read_text())).hexdigest()


def test_the_pinned_certificate_is_accepted(certificate: tuple[Path, Path], start_runner: Start):
    gateway = FakeGateway(certificate)
    gateway.plan = shell("echo hello; exit 3")
    # As openssl prints it.
    digits = fingerprint(certificate[0]).upper()
    pinned = ":".join(digits[at : at + 2] for at in range(0, 64, 2))
    runner = start_runner(gateway=gateway, TURNOUT_FINGERPRINT=pinned)
    assert runner.finish() == 3
    assert bytes(gateway.logs[0]) == b"hello\n"
    gateway.go_away()


@pytest.mark.parametrize("pinned", ["00" * 32, ""])
def test_another_certificate_is_refused(pinned: str, certificate: tuple[Path, Path], start_runner: Start):
    gateway = FakeGateway(certificate)
    seen: list[str] = []
    gateway.fault = lambda name, count: seen.append(name) or ""
    runner = start_runner(gateway=gateway, TURNOUT_FINGERPRINT=pinned, TURNOUT_PATIENCE="0.5")
    assert runner.wait() == 75
    assert (
        "is not the one of TURNOUT_FINGERPRINT" if pinned else "CERTIFICATE_VERIFY_FAILED"
    ) in runner.printed
    assert not seen
    gateway.go_away()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"TURNOUT_TOKEN": ""}, "there is no token"),
        (
            {"TURNOUT_TOKEN": "", "TURNOUT_TOKEN_FILE": "/no/file"},
            "the file of TURNOUT_TOKEN_FILE cannot be read",
        ),
        ({"TURNOUT_FINGERPRINT": "abc"}, "TURNOUT_FINGERPRINT has to be a SHA-256"),
        ({"TURNOUT_PATIENCE": "soon"}, "TURNOUT_PATIENCE has to be a number of seconds"),
        ({"TURNOUT_SCRATCH": "/no/directory"}, "is a directory that can be written: /no/directory"),
    ],
)
def test_wrong_settings_are_named(variables: dict[str, str], message: str, start_runner: Start):
    runner = start_runner(**variables)
    assert runner.wait() == 75
    assert message in runner.printed


@pytest.mark.parametrize("seed", range(4))
def test_any_call_may_fail_in_any_way(seed: int, gateway: FakeGateway, start_runner: Start):
    chance = random.Random(seed)
    kinds = ["before", "after", "half", "503", "", "", "", ""]
    gateway.fault = lambda name, count: chance.choice(kinds) if count < 20 else ""
    gateway.objects[0] = {f"{number}": os.urandom(number * 1000) for number in range(20)}
    inputs = dict(gateway.objects[0])
    gateway.plan = lambda arrival: {
        "argv": ["/bin/sh", "-c", "seq 20000; for i in *; do cp $i out-$i; done; echo done >&2; exit 5"],
        "cwd": f"{arrival['home']}/copies/0",
        "mounts": [{"number": 0, "directory": "copies/0", "fetch": True, "save": True, "url": "obs://b/"}],
    }
    runner = start_runner()
    assert runner.wait_for_end(60)["code"] == 5
    gateway.order("save")
    gateway.wait_for(lambda: gateway.saved, 60)
    assert gateway.saved[0]["files"] == 20
    assert gateway.objects[0] == {**inputs, **{f"out-{name}": data for name, data in inputs.items()}}
    assert bytes(gateway.logs[0]) == b"".join(b"%d\n" % number for number in range(1, 20001))
    assert bytes(gateway.logs[1]) == b"done\n"
    assert len(gateway.started) == len(gateway.ended) == 1
    assert runner.finish() == 5
