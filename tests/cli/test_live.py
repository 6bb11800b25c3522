"""The command lines against a real service and real jobs."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cli.test_tictl import SEED, typed
from tests.running import KEY, Service, python_path, reachable_directory, running

EXAMPLES = Path(__file__).parents[2] / "examples"
COUNT = "--args=-c 'for i in $(seq 60); do echo $i; sleep 0.05; done'"


@pytest.fixture(autouse=True)
def as_client(service, monkeypatch):
    use(service, monkeypatch)


def use(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNOUT_ENDPOINT", service.endpoint)
    monkeypatch.setenv("TURNOUT_KEY", f"{KEY.id}:{KEY.secret}")


def start_tictl(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "turnout.cli.tictl", *words]
    environment = os.environ | {"PYTHONPATH": python_path()}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def test_a_job_from_beginning_to_end(run_tictl, run_turnout):
    created = run_tictl("job", "create", "first", "--command=python", "--args=-c 'print(6 * 7)'", "--wait")
    assert (created.code, created.err) == (0, "")
    assert created.out.startswith("create job success.\nNAME ")
    assert re.search(r"first: succeeded after \d+\.\d s(, after .* of waiting)?\n$", created.out)
    assert re.search(r"^first +\d.* Succeeded$", run_tictl("job", "list").out, re.MULTILINE)
    assert run_tictl("logs", "first").out.endswith("] 42\n")
    assert run_tictl("logs", "first", "--follow").out == run_tictl("logs", "first").out
    assert run_turnout("explain", "first").out.startswith("first (")
    assert run_tictl("job", "delete", "first").out == "The job first is deleted successfully.\n"
    gone = run_tictl("job", "describe", "first")
    assert (gone.code, gone.out) == (1, "")
    assert gone.err.startswith("tictl: no job first (ResourceNotFound); tictl shows only TI-A jobs")


def test_waiting_for_a_job_that_fails(run_tictl, run_turnout):
    outcome = run_tictl("job", "create", "broken", "--command=sh", "--args=-c 'echo oh; exit 3'", "--wait")
    assert outcome.code == 1
    assert re.search(r"broken: failed after \d+\.\d s(, after .* of waiting)?\n$", outcome.out)
    assert "program failed" in outcome.err
    assert "tictl logs broken" in outcome.err
    explained = run_turnout("explain", "broken").out
    assert "exit 3" in explained
    assert "The last lines of master-0 (`turnout logs " in explained
    assert "\n  oh\n" in explained
    setting = 'to use another, set [runtimes."tia-1.6.0"] python = "…"'
    assert setting in " ".join(explained.split())
    assert (
        "\n  It failed: program failed.\n  master-0 exited with code 3.\n  `python` was Python 3."
        in explained
    )


def test_explain_says_where_the_workspace_of_a_debug_job_is(run_tictl, run_turnout, service):
    kept = ["job", "create", "kept", "--command=sh", "--args=-c 'echo 42 > result'", "--debug", "--wait"]
    assert run_tictl(*kept).code == 0
    (place,) = json.loads(run_turnout("explain", "kept", "--output=json").out)["workspaces"]
    assert Path(place).is_relative_to(service.data / "attempts")
    assert (Path(place) / "result").read_text() == "42\n"
    assert f"Kept for debugging: {place}\n" in run_turnout("explain", "kept").out
    assert run_tictl("job", "create", "usual", "--command=true", "--wait").code == 0
    assert json.loads(run_turnout("explain", "usual", "--output=json").out)["workspaces"] == []


def test_json_for_scripts(run_tictl, run_turnout):
    created = run_tictl("job", "create", "scripted", "--command=true", "--wait", "--output=json")
    assert json.loads(created.out)["State"] == "Succeeded"
    assert json.loads(run_tictl("job", "describe", "scripted", "--output=json").out)[0]["Name"] == "scripted"
    assert json.loads(run_turnout("explain", "scripted", "--output=json").out)["state"] == "succeeded"
    assert json.loads(run_tictl("user", "--output=json").out)["key"] == KEY.id


@pytest.mark.parametrize(
    ("flags", "advice"),
    [
        (["--mt=1U1G9P"], "(ResourceUnavailable); `turnout doctor` shows how many the machine has;"),
        (["--runtime=foo"], "(InvalidParameter); docs/tia.md lists them all under Runtimes\n"),
        (["-p", "/srv/x:/code"], "(InvalidParameter); did you mean file:///srv/x:/code?\n"),
        (["-p", "file:///tmp:/a", "-p", "/srv/x"], "; did you mean file:///srv/x:/data?\n"),
        (["-p", "ftp://srv/x:/data"], "(InvalidParameter)\n"),
        (["-c", "nowhere"], "(ResourceUnavailable)\n"),
    ],
)
def test_errors_are_followed_by_advice(run_tictl, flags, advice):
    refused = run_tictl("job", "create", "refused", "--command=true", *flags)
    assert (refused.code, refused.out) == (1, "")
    assert advice in refused.err
    assert refused.err.count("\n") == 1


def test_the_clusters_of_the_service(run_tictl):
    assert len(run_tictl("cluster", "list", "--no-header").out.splitlines()) == 4
    assert run_tictl("cluster", "switch", "-c", "ap-chengdu").code == 0
    assert run_tictl("cluster", "list", "-d").out == "The default cluster is `ap-chengdu` `ap-chengdu`\n"


def test_a_name_that_is_taken(run_tictl):
    assert run_tictl("job", "create", "twice", "--command=true").code == 0
    again = run_tictl("job", "create", "twice", "--command=true")
    assert (again.code, again.out) == (1, "")
    assert again.err.endswith("(FailedOperation.AlreadyExists)\n")


@pytest.mark.parametrize("key", ["unknown:secret-enough", f"{KEY.id}:not-its-secret"])
def test_a_wrong_key(run_tictl, run_turnout, monkeypatch, key):
    monkeypatch.setenv("TURNOUT_KEY", key)
    for outcome in (run_tictl("job", "list"), run_turnout("explain", "first"), run_tictl("login")):
        assert (outcome.code, outcome.out) == (1, "")
        assert "no such key, or a wrong secret (" in outcome.err
        assert "give a key with `tictl login" in outcome.err
        assert "token" not in outcome.err


def test_following_and_waiting_survive_a_kill_of_the_service(run_tictl, monkeypatch):
    with running() as service:
        use(service.start(), monkeypatch)
        with start_tictl("job", "create", "counting", "--command=sh", COUNT, "--wait") as waiting:
            assert waiting.stdout
            assert waiting.stdout.readline() == "create job success.\n"
            service.wait("counting", "started")
            with start_tictl("logs", "counting", "-f", "--no-time-prefix") as following:
                assert following.stdout
                assert following.stderr
                lines = [following.stdout.readline() for _ in range(5)]
                service.kill()
                service.start()
                # Not communicate(): it loses what readline() has read ahead.
                assert [*lines, *following.stdout] == [f"{i}\n" for i in range(1, 61)]
                complaints = ("", "tictl: the service does not answer; waiting up to 60 s for it\n")
                assert following.stderr.read() in complaints
            assert "counting: succeeded after" in waiting.stdout.read()
        assert (following.returncode, waiting.returncode) == (0, 0)


def test_the_tfplus_example_of_the_documentation_runs_unchanged(run_tictl, monkeypatch):
    with reachable_directory() as scripts:
        folder = scripts / "tf_cnn_benchmarks"
        folder.mkdir()
        program = "import os, sys\nprint(os.environ['CUDA_VISIBLE_DEVICES'], *sys.argv[1:])\n"
        (folder / "tf_cnn_benchmarks.py").write_text(program)
        settings = f"""
            [clusters.cls-rgaisoe4]
            engine = "local"
            [engines.local]
            gpus = 6
            [runtimes."tfplus-1.6.0-gpu".mounts]
            "/scripts" = "{scripts}"
        """
        with running(settings) as service:
            use(service.start(), monkeypatch)
            assert run_tictl(*typed(SEED), "--wait").code == 0
            printed = run_tictl("logs", "test73", "-c", "cls-rgaisoe4", "--no-time-prefix").out.splitlines()
    devices = sorted(line.split()[0].split(",") for line in printed)
    assert sorted(map(len, devices)) == [2, 2, 2]
    assert sorted(device for few in devices for device in few) == list("012345")
    assert {line.split(maxsplit=1)[1] for line in printed} == {
        "--model resnet50 --batch_size 32 --variable_update tfplus"
    }


def test_explain_says_why_a_job_waits(run_tictl, run_turnout, monkeypatch):
    with running("[engines.local]\ngpus = 1\n") as service:
        use(service.start(), monkeypatch)
        for name in ("holder", "waiter"):
            assert run_tictl("job", "create", name, "--command=sleep 60", "--mt=1U1G1P").code == 0
        service.wait("holder", "started")
        explained = run_turnout("explain", "waiter").out
        assert re.match(r"waiter \(\d+\) on ap-beijing: queued, 1 of 1 in the queue\n", explained)
        assert "GPU" in explained
        assert run_tictl("job", "delete", "holder", "waiter").code == 0


def test_the_demo_leaves_nothing_behind():
    before = set(Path(tempfile.gettempdir()).glob("turnout-demo-*"))
    demo = subprocess.run([sys.executable, EXAMPLES / "demo.py"], capture_output=True, text=True, check=False)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "Done training!" in demo.stdout
    assert "the job succeeded" in demo.stdout
    assert set(Path(tempfile.gettempdir()).glob("turnout-demo-*")) == before
