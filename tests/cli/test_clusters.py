"""`turnout cluster` and `turnout doctor` with a Slurm that a script stands in for, or that is not installed."""

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.running import KEY, Service, reachable_directory, running
from turnout.access import Key

# Like ssh, it gets the whole command as its last argument. It runs no job, and lists none.
STAND_IN = """\
#!/bin/sh
case $1 in
    *--version) echo slurm 22.05.8 ;;
    sinfo*) printf 'batch*\\037up\\0372\\037idle\\n' ;;
    sbatch*--test-only*) ;;
    sbatch*) echo "sbatch: error: Invalid account" >&2; exit 1 ;;
esac
"""
CONFIG = """
[clusters.gpu]
engine = "slurm"
partition = "batch"
command = ["{stand_in}"]
[clusters.away]
engine = "slurm"
command = ["/nowhere/ssh", "login1"]
"""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with reachable_directory() as directory:
        stand_in = directory / "stand-in"
        stand_in.write_text(STAND_IN)
        stand_in.chmod(0o755)
        with running(CONFIG.format(stand_in=stand_in)) as one:
            yield started(one)


def started(service: Service) -> Service:
    """Once it answers: one of its clusters is never ready."""
    service.start(wait=False)

    def answers() -> bool:
        try:
            return health(service).startswith("ok\n")
        except OSError:
            return False

    until(answers)
    return service


@pytest.fixture(autouse=True)
def as_root(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    use(service, KEY, monkeypatch)


def use(service: Service, key: Key, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNOUT_ENDPOINT", service.endpoint)
    monkeypatch.setenv("TURNOUT_KEY", f"{key.id}:{key.secret}")


def until(condition: Callable[[], bool]) -> None:
    """A service asks its clusters for the first time a moment after its start."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def listed(run_turnout: Run) -> dict[str, dict[str, object]]:
    return {one["name"]: one for one in json.loads(run_turnout("cluster", "list", "--output=json").out)}


def health(service: Service) -> str:
    with urllib.request.urlopen(f"{service.endpoint}/healthz", timeout=30) as answer:
        return answer.read().decode()


def test_a_cluster_that_cannot_be_reached_is_named(service: Service, run_turnout: Run):
    trouble = "/nowhere/ssh cannot be run: No such file or directory"
    until(lambda: bool(listed(run_turnout)["away"]["trouble"]))
    found = listed(run_turnout)
    assert found["away"]["engine"] == "slurm"
    assert trouble in str(found["away"]["trouble"])
    assert (found["gpu"]["trouble"], found["ap-beijing"]["trouble"]) == ("", "")
    assert health(service).startswith("ok\n")
    assert f"no job starts on away: {found['away']['trouble']}" in health(service)
    table = run_turnout("cluster", "list").out
    assert table.splitlines()[0].split() == ["CLUSTER", "ENGINE", "STATE"]
    assert "/nowhere/ssh" in table


def test_jobs_of_other_clusters_run_meanwhile(service: Service, run_turnout: Run):
    service.create("here", "true")
    assert service.wait("here")["state"] == "succeeded"
    service.create("there", "true", Cluster="away")
    until(lambda: "/nowhere/ssh cannot be run" in run_turnout("explain", "there").out)
    service.delete("there", "away")


def test_a_check_shows_each_result_and_ends_with_the_first_that_rules_out_the_rest(run_turnout: Run):
    outcome = run_turnout("cluster", "check", "gpu")
    assert outcome.code == 1, outcome
    lines = outcome.out.splitlines()
    assert lines[0].startswith("ok      commands: sbatch, squeue, scancel, scontrol, sinfo through")
    assert lines[1] == "ok      partition batch: nodes: 2 idle"
    assert lines[2] == "ok      sbatch takes a job: yes with --partition=batch"
    assert lines[3].startswith("failed  a node runs a job: ")
    assert "Invalid account" in lines[3]


def test_a_check_of_a_slurm_that_is_not_installed(run_turnout: Run):
    outcome = run_turnout("cluster", "check", "away", "--output=json")
    assert outcome.code == 1
    [result] = json.loads(outcome.out)
    assert (result["what"], result["ok"]) == ("commands", False)
    assert result["detail"] == (
        "/nowhere/ssh cannot be run: No such file or directory (through `/nowhere/ssh login1`)"
    )


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("ap-beijing", "cluster ap-beijing is this machine: `turnout doctor` checks it"),
        ("gpo", "there is no cluster 'gpo'; there are"),
    ],
)
@pytest.mark.parametrize("command", ["check", "drain", "resume"])
def test_names_that_are_no_clusters_beyond_this_machine(
    run_turnout: Run, command: str, name: str, complaint: str
):
    outcome = run_turnout("cluster", command, name)
    assert (outcome.code, outcome.out) == (1, "")
    assert complaint in outcome.err


def test_only_root_checks_and_drains(service: Service, run_turnout: Run, monkeypatch: pytest.MonkeyPatch):
    made = json.loads(run_turnout("keys", "create", "--project=default", "--output=json").out)
    use(service, Key(made["id"], made["secret"], "default"), monkeypatch)
    assert set(listed(run_turnout)) >= {"gpu", "away", "ap-beijing"}
    for command in ("check", "drain", "resume"):
        outcome = run_turnout("cluster", command, "gpu")
        assert outcome.code == 1
        assert "only the root key may check and drain clusters" in outcome.err


def test_a_drained_cluster_stays_drained_and_its_jobs_say_so(service: Service, run_turnout: Run):
    why = "Cluster gpu takes no new jobs, because an operator has drained it."
    outcome = run_turnout("cluster", "drain", "gpu")
    assert (outcome.code, outcome.err) == (0, "")
    assert "Undo it with: turnout cluster resume gpu" in outcome.out
    service.create("drained", "true", Cluster="gpu")
    assert why in run_turnout("explain", "drained").out
    service.kill()
    started(service)
    until(lambda: why in run_turnout("explain", "drained").out)
    assert listed(run_turnout)["gpu"]["drained"] is True
    assert "drained: it takes no new jobs" in run_turnout("cluster", "list").out
    assert run_turnout("cluster", "resume", "gpu").out == "gpu takes new jobs again.\n"
    assert listed(run_turnout)["gpu"]["drained"] is False
    assert json.loads(run_turnout("cluster", "drain", "gpu", "--output=json").out)["drained"] is True
    assert json.loads(run_turnout("cluster", "resume", "gpu", "--output=json").out)["drained"] is False
    job = service.wait("drained")
    assert job["state"] == "failed"
    assert "Invalid account" in job["message"]


def test_the_doctor_names_clusters_beyond_this_machine(run_turnout: Run, tmp_path: Path):
    stand_in = tmp_path / "stand-in"
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    file = tmp_path / "turnout.toml"
    file.write_text(CONFIG.format(stand_in=stand_in))
    findings = json.loads(run_turnout("doctor", f"--config={file}", "--output=json").out)
    gpu, away = findings["cluster gpu"], findings["cluster away"]
    refused = "a node runs a job: Slurm refused the job: Invalid account"
    assert (gpu["status"], gpu["found"]) == ("warn", f"slurm, partition batch; {refused}")
    assert (away["status"], away["found"]) == ("warn", "slurm: /nowhere/ssh is not on the PATH")
    assert "turnout cluster check away" in away["advice"]
    assert not [name for name in findings if name.startswith("cluster ap-")]


def test_the_doctor_without_the_service(run_turnout: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TURNOUT_ENDPOINT", "http://127.0.0.1:9")
    file = tmp_path / "turnout.toml"
    file.write_text(CONFIG.format(stand_in="/bin/true"))
    gpu = json.loads(run_turnout("doctor", f"--config={file}", "--output=json").out)["cluster gpu"]
    assert (gpu["status"], gpu["found"]) == ("ok", "slurm, partition batch; not checked here")
    assert gpu["advice"] == "to check it while the service runs: turnout cluster check gpu"


def test_an_interpreter_that_only_nodes_have(run_turnout: Run, tmp_path: Path):
    runtime = '[runtimes."tia-1.7.0"]\npython = "/nowhere/python"\n'
    with running(CONFIG.format(stand_in="/bin/true") + runtime) as one:
        started(one)
        with pytest.raises(Exception, match="/nowhere/python"):
            one.create("here", "true")
        one.create("there", "true", Cluster="away")
        one.create("other", "true", RuntimeVersion="tia-1.4.0")
        assert one.wait("other")["state"] == "succeeded"
        findings = json.loads(run_turnout("doctor", f"--config={one.config}", "--output=json").out)
    found = findings["runtime tia-1.7.0"]
    assert found["status"] == "warn"
    assert "the nodes of clusters must have" in found["advice"]
