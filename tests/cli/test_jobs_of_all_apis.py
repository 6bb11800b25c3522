"""`turnout jobs`, `submit`, `clone`, `priority` and `run` at a real service."""

import json
import os
import pty
import socket
import subprocess
import sys
import termios

import pytest
import yaml

from tests.cli.programs import program
from tests.dialects.native.driving import vertex_job
from tests.running import IMAGES, KEY, Service, python_path, running

TIA = {"Name": "from-tia", "Cluster": "ap-beijing", "RuntimeVersion": "tia-1.7.0", "Command": ["echo", "tia"]}


@pytest.fixture(scope="module")
def service():
    """With one simulated GPU, so that a second job that wants it waits."""
    with running("[engines.local]\ngpus = 1\n" + IMAGES) as started:
        yield started.start()


@pytest.fixture(autouse=True)
def as_client(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNOUT_ENDPOINT", service.endpoint)
    monkeypatch.setenv("TURNOUT_KEY", f"{KEY.id}:{KEY.secret}")


def listed(run_turnout, *words: str):
    return json.loads(run_turnout("jobs", "--output", "json", *words).out)


def test_files_of_any_api_are_submitted_and_listed_together(run_turnout, tmp_path):
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(vertex_job("from-vertex", "echo vertex; exit 3")))
    (tmp_path / "job.json").write_text(json.dumps(TIA))
    failed = run_turnout("submit", str(tmp_path / "job.yaml"), "--follow")
    assert failed.code == 1
    assert failed.out.startswith("from-vertex (")
    assert failed.out.endswith(" of project default is created.\nvertex\n")
    assert failed.err.startswith("turnout: from-vertex failed: ")
    done = run_turnout("submit", str(tmp_path / "job.json"), "--name", "renamed", "-f")
    [note, last] = done.err.splitlines()
    assert note.startswith(
        "turnout: tia-1.7.0 asks for TensorFlow 1.7.0, MXNet, XGBoost on Python 2.7; here it runs on "
    )
    assert (done.code, last) == (0, "turnout: renamed succeeded")
    table = run_turnout("jobs").out.splitlines()
    assert table[0].split() == ["NAME", "API", "PROJECT", "STATE", "CREATED", "RAN", "WHY"]
    assert table[1].split()[:4] == ["renamed", "tia", "default", "succeeded"]
    assert table[2].split()[:4] == ["from-vertex", "vertex", "default", "failed"]
    assert [job["name"] for job in listed(run_turnout, "--state", "failed")] == ["from-vertex"]
    assert [job["name"] for job in listed(run_turnout, "--api", "tia", "-n", "0")] == ["renamed"]
    [row] = yaml.safe_load(run_turnout("jobs", "--api", "tia", "--output", "yaml").out)
    assert row["id"] in run_turnout("jobs", "--output", "wide").out


def test_that_another_python_stands_for_an_image_is_said_at_once(run_turnout, service: Service, tmp_path):
    """By the reply, in the log and in an event."""
    document = vertex_job("without-image", "echo mine")
    document["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["imageUri"] = "team/unknown:1"
    (tmp_path / "job.json").write_text(json.dumps(document))
    said = "the image team/unknown:1 is not used: this machine's Python runs the program; "
    made = run_turnout("submit", str(tmp_path / "job.json"), "--follow")
    assert made.code == 0
    assert made.err.startswith(f"turnout: {said}")
    assert made.out.splitlines()[1].startswith(f"[turnout] {said.rstrip('; ')}.")
    clone = run_turnout("clone", "without-image", "--output", "json")
    assert clone.err.startswith(f"turnout: {said}")
    [made] = json.loads(clone.out)
    assert [note[: len(said)] for note in made["notes"]] == [said]
    document["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["imageUri"] = "python:3.11"
    (tmp_path / "job.json").write_text(json.dumps(document))
    assert run_turnout("submit", str(tmp_path / "job.json")).err == ""


def test_a_clone_has_what_was_set(run_turnout, tmp_path):
    (tmp_path / "job.json").write_text(json.dumps(TIA | {"Name": "original"}))
    assert run_turnout("submit", str(tmp_path / "job.json"), "-f").code == 0
    cloned = run_turnout("clone", "original", "--set", 'Command=["echo", "changed"]', "-f")
    assert cloned.out.splitlines()[-1] == "changed"
    assert cloned.out.startswith("original-2 (")
    wrong = run_turnout("clone", "original", "--set", "Command")
    assert (wrong.code, wrong.err.startswith("turnout: --set must be path=value")) == (1, True)


def test_a_clone_can_be_a_job_of_another_api(run_turnout, tmp_path):
    (tmp_path / "job.json").write_text(json.dumps(TIA | {"Name": "moves"}))
    run_turnout("submit", str(tmp_path / "job.json"), "-f")
    cloned = run_turnout("clone", "moves", "--api", "vertex", "-f", "--output", "json")
    [job] = json.loads(cloned.out)
    assert (job["dialect"], job["name"], job["state"]) == ("vertex", "moves-2", "succeeded")
    assert "turnout: imageUri: choose an image that has TensorFlow 1.7.0" in cloned.err


def test_what_a_change_made_of_the_jobs_is_printed_for_scripts(run_turnout, tmp_path):
    (tmp_path / "job.json").write_text(json.dumps(vertex_job("scripted", "sleep 600")))
    [made] = yaml.safe_load(run_turnout("submit", str(tmp_path / "job.json"), "--output", "yaml").out)
    stopped = run_turnout("stop", made["id"], "no-such-job", "--output", "json")
    assert stopped.code == 1
    assert [job["id"] for job in json.loads(stopped.out)] == [made["id"]]
    deleted = run_turnout("delete", made["id"], "--output", "wide").out.splitlines()
    assert deleted[0].split() == ["ID", "NAME", "API", "PROJECT", "CLUSTER", "STATE", "CREATED"]
    assert deleted[1].split()[:2] == [made["id"], "scripted"]


def test_priority_and_the_reason_why_a_job_waits(service: Service, run_turnout, tmp_path):
    for name in ("holds", "first", "second"):
        (tmp_path / "job.json").write_text(json.dumps(vertex_job(name, "sleep 600", gpus=1)))
        run_turnout("submit", str(tmp_path / "job.json"))
        if name == "holds":
            service.wait("holds", "started")
    raised = run_turnout("priority", "second", "no-such-job", "--to", "3")
    assert raised.code == 1
    assert raised.out.endswith(" of project default has priority 3.\n")
    assert "no-such-job" in raised.err
    [first] = listed(run_turnout, "--name", "first")
    assert first["waits_for"].startswith("place 2 of 2: needs ")
    assert run_turnout("stop", "first", "second", "holds").code == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1", "is neither JSON nor YAML"),
        ("- 1", "must have one JSON or YAML object"),
        ("a: 2020-01-01", "is neither JSON nor YAML"),
        ("a: 1", "the document belongs to no API of this service"),
    ],
)
def test_a_wrong_file_is_refused(run_turnout, tmp_path, text: str, message: str):
    (tmp_path / "job.yaml").write_text(text)
    refused = run_turnout("submit", str(tmp_path / "job.yaml"))
    assert (refused.code, message in refused.err) == (1, True), refused.err
    assert run_turnout("submit", str(tmp_path / "missing")).code == 1


def test_run_takes_this_directory_as_code(run_turnout, tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / ".hidden").write_text("secret")
    (tmp_path / "sub" / "word.py").write_text("WORD = 'imported'")
    (tmp_path / "train.py").write_text(
        "import os, sys; from sub.word import WORD; print(WORD, sys.argv[1:], os.path.exists('.hidden'))"
    )
    monkeypatch.chdir(tmp_path)
    ran = run_turnout("run", "--name", "ran", "--", "python3", "train.py", "--epochs", "3")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "imported ['--epochs', '3'] False"), ran.err
    both = run_turnout("run", "--replicas", "2", "--", "sh", "-c", "echo here; sleep 2")  # the lead waits
    assert {line for line in both.out.splitlines() if "here" in line} == {
        "[workerpool0-0] here",
        "[workerpool1-0] here",
    }


def test_watch_shows_jobs_as_they_change(service: Service, run_turnout, tmp_path, monkeypatch):
    command = [sys.executable, "-m", "turnout.cli.main", "jobs", "--watch", "--name", "watched"]
    monkeypatch.setenv("PYTHONPATH", python_path())
    (tmp_path / "job.json").write_text(json.dumps(TIA | {"Name": "watched"}))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        run_turnout("submit", str(tmp_path / "job.json"))
        for line in watching.stdout:
            if line.split()[:4] == ["watched", "tia", "default", "succeeded"]:
                break
        watching.terminate()


def test_top_shows_the_machine_and_the_queue(service: Service, run_turnout, tmp_path):
    for name in ("holds-it", "[red]wants it"):
        (tmp_path / "job.json").write_text(json.dumps(vertex_job(name, "sleep 600", gpus=1)))
        run_turnout("submit", str(tmp_path / "job.json"))
        if name == "holds-it":
            service.wait(name, "started")
    shown = run_turnout("top")
    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    [machine], [holder], [waiter] = (
        [line for line in lines if word in line] for word in ("local", "holds-it", "[red]")
    )
    assert "1 of 1" in machine
    assert holder.split()[:4] == ["holds-it", "vertex", "default", "running"]
    assert waiter.startswith("[red]wants it  vertex")
    assert "1 in the queue" in waiter
    assert "1 GPU more" in waiter
    assert run_turnout("stop", "holds-it", "[red]wants it").code == 0


def test_top_is_drawn_again_when_a_job_starts(service: Service, run_turnout, tmp_path):
    """The service says that something has changed, and it fits the terminal."""
    terminal, ours = pty.openpty()
    termios.tcsetwinsize(ours, (24, 80))
    environment = os.environ | {"PYTHONPATH": python_path(), "TERM": "xterm"}
    with subprocess.Popen([*program("turnout"), "top"], stdout=ours, stderr=ours, env=environment) as showing:
        os.close(ours)
        seen = b""
        while b"RUNNING" not in seen:
            seen += os.read(terminal, 4096)
        (tmp_path / "job.json").write_text(json.dumps(vertex_job("appears", "sleep 600")))
        run_turnout("submit", str(tmp_path / "job.json"))
        while b"appears" not in seen:
            seen += os.read(terminal, 4096)
        showing.terminate()
        assert b"Traceback" not in seen
    os.close(terminal)
    assert run_turnout("stop", "appears").code == 0


def completed(shell: str, line: str, **variables: str) -> list[str]:
    """What the shell gets when Tab is pressed at the end of the line."""
    protocol = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }
    environment = os.environ | {"PYTHONPATH": python_path(), "_TURNOUT_COMPLETE": f"complete_{shell}"}
    ran = subprocess.run(
        program("turnout"),
        env=environment | protocol[shell] | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stderr == ""
    return ran.stdout.splitlines() if ran.stdout.strip() else []


def test_names_of_jobs_are_completed(run_turnout, tmp_path):
    for name in ("tabbed-1", "tabbed-2", "two words"):
        document = TIA | {"Name": name} if " " not in name else vertex_job(name, "true")
        (tmp_path / "job.json").write_text(json.dumps(document))
        assert run_turnout("submit", str(tmp_path / "job.json"), "-f").code == 0
    assert completed("bash", "turnout logs tab") == ["tabbed-2", "tabbed-1"]
    assert completed("fish", "turnout explain tabbed-1") == ["tabbed-1\ttia, succeeded"]
    assert '"tabbed-1":"tia, succeeded"' in completed("zsh", "turnout clone tabbed-1")[0]
    [job] = listed(run_turnout, "--name", "two words")
    assert job["id"] in completed("bash", "turnout logs ")
    assert completed("bash", f"turnout logs {job['id'][:-1]}") == [job["id"]]
    assert completed("bash", "turnout stop tab") == [], "they have ended"
    assert completed("bash", "turnout jobs --state live,f") == ["live,failed"]


def test_completion_is_silent_while_the_service_is_away_or_hangs(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hanging = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert completed("bash", "turnout logs ", TURNOUT_ENDPOINT=hanging) == []
    assert completed("bash", "turnout logs ", TURNOUT_ENDPOINT=hanging) == []
    assert completed("bash", "turnout logs ", TURNOUT_KEY="no colon") == []
