"""The program of a replica: how it starts, what it gets, how it ends."""

import json
import os
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runner.node.conftest import Start
from tests.runner.node.fake_gateway import TOKEN, Document, FakeGateway


def shell(script: str, **fields: object):
    """A plan that runs a shell script."""
    return lambda arrival: {"argv": ["/bin/sh", "-c", script], **fields}


def test_the_exit_code_is_the_programs(gateway: FakeGateway, start_runner: Start, scratch: Path):
    gateway.plan = shell("echo out; echo err >&2; exit 3")
    runner = start_runner()
    end = runner.wait_for_end()
    assert (end["cause"], end["code"], end["signal"], end["restarts"]) == ("exit", 3, None, 0)
    assert end["at"] >= gateway.started[0]["at"]
    assert gateway.started[0]["restarts"] == 0
    assert bytes(gateway.logs[0]) == b"out\n"
    assert bytes(gateway.logs[1]) == b"err\n"
    gateway.order("leave")
    assert runner.wait() == 3
    assert not list(scratch.iterdir())
    assert runner.printed == ""
    # What the program prints may be sent before the message that it has started.
    names = [name for name, _ in gateway.calls if name not in ("wait", "tell")]
    assert names[:3] == ["claim", "arrive", "started"]


@pytest.mark.parametrize("sandboxed", [False, True])
def test_the_signal_is_the_programs(
    sandboxed: bool, gateway: FakeGateway, start_runner: Start, without_sandbox: str
):
    gateway.plan = shell("kill -9 $$")
    runner = start_runner(**{} if sandboxed else {"PATH": without_sandbox})
    end = runner.wait_for_end()
    assert gateway.arrival
    assert gateway.arrival["sandbox"] is sandboxed
    assert (end["cause"], end["code"], end["signal"]) == ("exit", None, 9)
    assert runner.finish() == 128 + 9


@pytest.mark.parametrize("sandboxed", [False, True])
def test_a_missing_program_is_named(
    sandboxed: bool, gateway: FakeGateway, start_runner: Start, without_sandbox: str
):
    gateway.plan = lambda arrival: {"argv": ["no-such-program"]}
    runner = start_runner(**{} if sandboxed else {"PATH": without_sandbox})
    end = runner.wait_for_end()
    assert (end["cause"], end["code"]) == ("not found", 127)
    assert end["message"] == "no-such-program: no such program, or its interpreter is missing"
    assert runner.finish() == 127


@pytest.mark.parametrize("sandboxed", [False, True])
def test_a_missing_directory_is_named(
    sandboxed: bool, gateway: FakeGateway, start_runner: Start, without_sandbox: str
):
    gateway.plan = shell("true", cwd="/no/such/directory")
    runner = start_runner(**{} if sandboxed else {"PATH": without_sandbox})
    end = runner.wait_for_end()
    assert (end["cause"], end["code"]) == ("not found", 126)
    assert end["message"] == "working directory /no/such/directory: No such file or directory"
    runner.finish()


def test_a_script_without_an_interpreter_line_runs(
    gateway: FakeGateway, start_runner: Start, tmp_path: Path, without_sandbox: str
):
    script = tmp_path / "script"
    script.write_text("echo from the script $1\n")
    script.chmod(0o755)
    gateway.plan = lambda arrival: {"argv": [str(script), "x"]}
    assert start_runner(PATH=without_sandbox).finish() == 0
    assert bytes(gateway.logs[0]) == b"from the script x\n"


def test_the_program_gets_the_plans_environment_and_nothing_else(
    gateway: FakeGateway, start_runner: Start, without_sandbox: str
):
    env = {"PATH": "/usr/bin:/bin", "A": "ü b", "TF_CONFIG": json.dumps({"cluster": {}})}
    script = "import os, json; print(json.dumps([dict(os.environ), os.getcwd()]))"
    gateway.plan = lambda arrival: {
        "argv": ["python3", "-c", script],
        "env": {**env, "PATH": f"{arrival['home']}/shims:/usr/bin:/bin"},
        "inherit": ["SLURM_*", "CUDA_VISIBLE_DEVICES"],
        "python_shims": True,
        "dirs": ["space/work", "space/tmp", "shims", "space/tmp/root/opt"],
        "links": {"space/tmp/root/data": "/etc"},
        "cwd": f"{arrival['home']}/space/tmp/root/data",
    }
    runner = start_runner(PATH=without_sandbox, SLURM_JOB_NODELIST="n1", CUDA_VISIBLE_DEVICES="2", OTHER="x")
    runner.finish()
    found, cwd = json.loads(gateway.logs[0])
    assert gateway.arrival
    expected = {**env, "PATH": f"{gateway.arrival['home']}/shims:/usr/bin:/bin"}
    expected |= {"SLURM_JOB_NODELIST": "n1", "CUDA_VISIBLE_DEVICES": "2"}
    assert {name: found[name] for name in expected} == expected
    assert set(found) - set(expected) <= {"LC_CTYPE", "PWD", "SHLVL", "_"}  # Python and the shell set these
    assert cwd == "/etc"


@pytest.mark.parametrize("in_file", [False, True])
def test_the_token_is_nowhere(in_file: bool, gateway: FakeGateway, start_runner: Start, tmp_path: Path):
    secret = tmp_path / "token"
    secret.write_text(f"{TOKEN}\n")
    gateway.plan = shell("cat /proc/self/environ /proc/self/cmdline; sleep 60", inherit=["TURNOUT_*"])
    runner = start_runner(**{"TURNOUT_TOKEN": "", "TURNOUT_TOKEN_FILE": str(secret)} if in_file else {})
    gateway.wait_for(lambda: gateway.logs[0])
    assert b"TURNOUT_SCRATCH" in gateway.logs[0]
    for pid in (runner.pid, gateway.started[0]["pid"]):
        for name in ("environ", "cmdline"):
            found = Path(f"/proc/{pid}/{name}").read_bytes()
            assert TOKEN.encode() not in found
            assert str(secret).encode() not in found
    gateway.order("stop", grace=0)
    runner.finish()
    assert TOKEN.encode() not in bytes(gateway.logs[0])


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that everybody may use."""
    with tempfile.TemporaryDirectory(prefix="turnout-test-", dir="/tmp") as directory:
        Path(directory).chmod(0o777)
        yield Path(directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("sandboxed", [False, True])
def test_an_ordinary_user_cannot_look_into_its_runner(
    sandboxed: bool, gateway: FakeGateway, start_runner: Start, archive: Path, public: Path
):
    (public / "runner.pyz").write_bytes(archive.read_bytes())
    starter = public / "starter"
    become = "/usr/bin/setpriv --reuid 65534 --regid 65534 --clear-groups"
    starter.write_text(f'#!/bin/sh\nshift\nexec {become} /usr/bin/python3 {public}/runner.pyz "$@"\n')
    starter.chmod(0o755)
    gateway.objects[0] = {"a": b"input\n"}
    gateway.plan = lambda arrival: {
        "argv": ["sh", "-c", "id -u; cat copy/a; cat /proc/$RUNNER/environ /proc/$RUNNER/mem"],
        "env": {"PATH": "/usr/bin:/bin", "RUNNER": str(gateway.named("claim")[0]["pid"])},
        "links": {"space/work/copy": f"{arrival['home']}/copies/0"},
        "mounts": [{"number": 0, "directory": "copies/0", "fetch": True}],
    }
    path = {} if sandboxed else {"PATH": str(public)}
    runner = start_runner(python=str(starter), TURNOUT_SCRATCH=str(public), **path)
    end = runner.wait_for_end()
    assert bytes(gateway.logs[0]) == b"65534\ninput\n"
    assert gateway.logs[1].count(b"Permission denied") == 2
    assert end["code"] == 1
    assert gateway.arrival
    assert gateway.arrival["sandbox"] is sandboxed
    assert runner.finish() == 1


def test_ports_are_free_and_reserved_until_the_start(gateway: FakeGateway, start_runner: Start):
    gateway.claim["ports"] = 3
    gateway.all_arrived = False
    gateway.plan = shell("sleep 60")
    start_runner(TURNOUT_ADDRESS="127.0.0.1")
    gateway.wait_for(lambda: gateway.arrival)
    assert gateway.arrival
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert gateway.arrival["address"] == "127.0.0.1"
    ports = gateway.arrival["ports"]
    assert len(set(ports)) == 3
    assert not any(low <= port <= high for port in ports)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", ports[0]))
    gateway.all_arrived = True
    gateway.wait_for(lambda: gateway.started)
    with socket.socket() as other:
        other.bind(("127.0.0.1", ports[0]))


def test_a_stop_sends_term_first(gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell("trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.1; done")
    runner = start_runner()
    gateway.wait_for(lambda: gateway.logs[0])
    gateway.order("stop", grace=20)
    end = runner.wait_for_end()
    assert (end["cause"], end["code"]) == ("stopped", 5)
    assert bytes(gateway.logs[0]) == b"ready\nbye\n"
    assert runner.finish() == 5


def test_a_stop_kills_after_the_grace_time(gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell("trap '' TERM; echo ready; while :; do sleep 0.1; done")
    runner = start_runner()
    gateway.wait_for(lambda: gateway.logs[0])
    begun = time.monotonic()
    gateway.order("stop", grace=0.5)
    end = runner.wait_for_end()
    assert time.monotonic() - begun >= 0.5
    assert (end["cause"], end["signal"]) == ("stopped", 9)


def test_a_stop_reaches_the_whole_tree(gateway: FakeGateway, start_runner: Start):
    inner = 'trap "echo inner; exit" TERM; echo ready; while :; do sleep 0.05; done'
    gateway.plan = shell(
        f"setsid sh -c '{inner}' & trap 'sleep 0.5; exit 0' TERM; while :; do sleep 0.05; done"
    )
    runner = start_runner()
    gateway.wait_for(lambda: gateway.logs[0])
    gateway.order("stop", grace=20)
    runner.wait_for_end()
    assert bytes(gateway.logs[0]) == b"ready\ninner\n"


def test_a_stop_before_the_start_starts_nothing(gateway: FakeGateway, start_runner: Start):
    gateway.all_arrived = False
    gateway.plan = shell("echo never")
    runner = start_runner()
    gateway.wait_for(lambda: gateway.arrival)
    gateway.order("stop", grace=5)
    end = runner.wait_for_end()
    assert (end["cause"], end["code"], end["signal"]) == ("stopped", None, None)
    gateway.all_arrived = True
    assert runner.finish() == 0
    assert not gateway.started
    assert not gateway.logs[0]


@pytest.mark.parametrize("sandboxed", [False, True])
def test_nothing_outlives_the_program(
    sandboxed: bool, gateway: FakeGateway, start_runner: Start, without_sandbox: str
):
    daemon = '(setsid sh -c \'trap "" TERM HUP; sh -c "exec sleep 9876" & exec sleep 9876\' &) ; '
    gateway.plan = shell(f"{daemon * 3} sleep 0.2; pgrep -fc '^sleep 9876'; exit 4")
    runner = start_runner(**{} if sandboxed else {"PATH": without_sandbox})
    assert runner.wait_for_end()["code"] == 4
    assert bytes(gateway.logs[0]) == b"6\n"
    assert not processes_named("sleep\x009876")
    runner.finish()


def processes_named(text: str) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if command.startswith(text.encode()):
                found.append(int(entry.name))
    return found


def test_the_time_limit_ends_it(gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell("sleep 60", limit=0.5, grace=5)
    end = start_runner().wait_for_end()
    assert (end["cause"], end["signal"]) == ("time limit", 15)


def test_what_is_left_of_the_time_limit_counts(gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell("sleep 60", limit=3600, limit_left=0.3)
    assert start_runner().wait_for_end()["cause"] == "time limit"


def test_the_time_limit_counts_from_the_first_start(gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell("[ -e again ] && exec sleep 60; touch again", limit=1)
    runner = start_runner()
    assert runner.wait_for_end()["cause"] == "exit"
    time.sleep(1.1)
    gateway.order("restart", restarts=1)
    gateway.wait_for(lambda: len(gateway.ended) == 2)
    assert gateway.ended[1]["cause"] == "time limit"
    assert gateway.ended[1]["at"] - gateway.started[1]["at"] < 0.9e9


def test_the_time_limit_holds_while_the_service_is_away(gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell("trap '' TERM; while :; do sleep 0.05; done", limit=1, grace=0.5)
    runner = start_runner()
    pid = gateway.wait_for(lambda: gateway.started)[0]["pid"]
    gateway.go_away()
    wait_until_gone(pid)
    gateway.come_back()
    end = runner.wait_for_end()
    assert (end["cause"], end["signal"]) == ("time limit", 9)
    assert end["at"] - gateway.started[0]["at"] < 10e9


def wait_until_gone(pid: int, seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while is_alive(pid):
        assert time.monotonic() < until
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_runner_is_reported(
    number: int, gateway: FakeGateway, start_runner: Start, scratch: Path
):
    gateway.plan = shell("trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.1; done")
    runner = start_runner()
    gateway.wait_for(lambda: gateway.logs[0])
    os.kill(runner.pid, number)
    assert runner.wait() == 7
    assert (gateway.ended[-1]["cause"], gateway.ended[-1]["code"]) == ("terminated", 7)
    assert bytes(gateway.logs[0]) == b"ready\nbye\n"
    assert not list(scratch.iterdir())


def test_a_signal_to_all_processes_is_reported(gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell("echo ready; exec sleep 60")
    runner = start_runner()
    gateway.wait_for(lambda: gateway.logs[0])
    for pid in (gateway.started[0]["pid"], runner.pid):
        os.kill(pid, signal.SIGTERM)
    assert runner.wait() == 128 + 15
    assert (gateway.ended[-1]["cause"], gateway.ended[-1]["signal"]) == ("terminated", 15)


def test_a_signal_before_the_start_is_reported(gateway: FakeGateway, start_runner: Start):
    gateway.all_arrived = False
    runner = start_runner()
    gateway.wait_for(lambda: gateway.arrival)
    os.kill(runner.pid, signal.SIGTERM)
    assert runner.wait() == 128 + 15
    assert (gateway.ended[-1]["cause"], gateway.ended[-1]["code"]) == ("terminated", None)


def test_a_signal_after_the_end_ends_the_runner(gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell("exit 2")
    runner = start_runner()
    runner.wait_for_end()
    os.kill(runner.pid, signal.SIGTERM)
    assert runner.wait() == 2
    assert len(gateway.ended) == 1


@pytest.mark.parametrize("sandboxed", [False, True])
def test_a_killed_runner_takes_the_program_with_it(
    sandboxed: bool, gateway: FakeGateway, start_runner: Start, without_sandbox: str
):
    gateway.plan = shell("trap '' TERM HUP; echo ready; while :; do sleep 0.1; done")
    runner = start_runner(**{} if sandboxed else {"PATH": without_sandbox})
    gateway.wait_for(lambda: gateway.logs[0] and gateway.started)
    pid = gateway.started[0]["pid"]
    os.kill(runner.pid, signal.SIGKILL)
    wait_until_gone(pid)


def test_a_runner_does_not_outlive_its_parent(gateway: FakeGateway, start_runner: Start, tmp_path: Path):
    gateway.plan = shell("sleep 60")
    parent = tmp_path / "parent"
    parent.write_text('#!/bin/sh\n/usr/bin/env python3 "$@" &\nwait\n')
    parent.chmod(0o755)
    runner = start_runner(python=str(parent))
    gateway.wait_for(lambda: gateway.started)
    runner.process.kill()
    assert runner.wait_for_end()["cause"] == "terminated"


def test_a_restart_goes_on_in_the_same_home(gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell("echo run >> runs; cat runs; exit $(wc -l < runs)", limit=60)
    runner = start_runner()
    assert runner.wait_for_end()["code"] == 1
    gateway.order("restart", restarts=1)
    gateway.wait_for(lambda: len(gateway.ended) == 2)
    gateway.order("restart", restarts=1)  # the same one again, with a new number
    gateway.order("restart", restarts=3)  # not the next one
    gateway.order("restart", restarts=2)
    gateway.wait_for(lambda: len(gateway.ended) == 3)
    assert [(end["restarts"], end["code"]) for end in gateway.ended] == [(0, 1), (1, 2), (2, 3)]
    assert [start["restarts"] for start in gateway.started] == [0, 1, 2]
    assert bytes(gateway.logs[0]) == b"run\n" * (1 + 2 + 3)
    assert runner.finish() == 3


def test_restarts_are_counted_from_what_the_service_says(gateway: FakeGateway, start_runner: Start):
    gateway.claim["restarts"] = 4
    gateway.plan = shell("true")
    assert start_runner().wait_for_end()["restarts"] == 4


def test_the_home_directory_can_be_kept(gateway: FakeGateway, start_runner: Start, scratch: Path):
    gateway.plan = shell("mkdir closed; touch closed/file; chmod 0 closed")
    runner = start_runner()
    runner.wait_for_end()
    gateway.order("leave", keep=True)
    assert runner.wait() == 0
    [home] = scratch.iterdir()
    assert home.stat().st_mode & 0o777 == 0o700


def test_samples_idle_time_and_metrics_are_sent(gateway: FakeGateway, start_runner: Start):
    gateway.claim["sample_seconds"] = 0.3
    program = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo '{\"loss\": 1}' > metrics; sleep 60"

    def plan(arrival: Document) -> Document:
        return {"argv": ["/bin/sh", "-c", program], "memory": 1 << 30, "metrics_file": "space/work/metrics"}

    gateway.plan = plan
    runner = start_runner()
    gateway.wait_for(lambda: (gateway.idle[-1:] or [0])[0] and gateway.files)
    gateway.wait_for(lambda: (gateway.idle[-1] or 0) > 1)
    assert gateway.files == {"space/work/metrics": '{"loss": 1}\n'}
    assert max(sample["cpu"] for sample in gateway.samples) > 5
    assert all(0 < sample["memory"] < 50 for sample in gateway.samples)
    assert set(gateway.samples[0]) == {"at", "cpu", "memory", "gpu", "gpu_memory"}
    gateway.order("stop", grace=0)
    runner.finish()


def test_the_last_metrics_come_before_the_end(gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell("echo 0.5 > /tmp/../$HOME/metrics", metrics_file="space/work/metrics")
    start_runner().wait_for_end()
    assert gateway.files == {"space/work/metrics": "0.5\n"}
