"""`turnout logs` for jobs of every API."""

import json
import os
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.dialects.modelarts import driving as modelarts
from tests.dialects.vertex import jobs
from tests.dialects.vertex.driving import Cloud
from tests.running import KEY, Service, python_path, reachable_directory


@pytest.fixture(autouse=True)
def as_client(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNOUT_ENDPOINT", service.endpoint)
    monkeypatch.setenv("TURNOUT_KEY", f"{KEY.id}:{KEY.secret}")


@pytest.fixture
def cloud(service: Service) -> Cloud:
    return Cloud(service, KEY.project)


def number(job: Any) -> str:
    return job["name"].rpartition("/")[2]


def test_a_job_of_vertex_by_name_and_number(cloud, run_turnout, run_tictl):
    job = cloud.shell("echo hello; echo trouble >&2", displayName="of vertex/1")
    cloud.wait(job["name"])
    for reference in ("of vertex/1", number(job)):
        shown = run_turnout("logs", reference)
        assert (shown.code, sorted(shown.out.splitlines()), shown.err) == (0, ["hello", "trouble"], "")
    assert sorted(run_turnout("logs", number(job), "--follow").out.splitlines()) == ["hello", "trouble"]
    lines = [json.loads(line) for line in run_turnout("logs", number(job), "--output=json").out.splitlines()]
    assert yaml.safe_load(run_turnout("logs", number(job), "--output=yaml").out) == lines
    assert {(line["stream"], line["text"]) for line in lines} == {("stdout", "hello"), ("stderr", "trouble")}
    stranger = run_tictl("logs", "of-vertex")
    assert (stranger.code, stranger.out) == (1, "")
    assert (
        "tictl shows only TI-A jobs of a cluster, here ap-beijing (-c chooses another); `turnout logs` and"
        in stranger.err
    )


def test_a_job_of_modelarts(service, run_turnout):
    made = modelarts.Cloud(service).create("of-modelarts", "echo hello")
    service.wait("of-modelarts")
    for reference in ("of-modelarts", made.metadata.id):
        assert "hello" in run_turnout("logs", reference).out.splitlines()


@pytest.fixture
def gate() -> Iterator[Path]:
    """A directory that jobs see. Jobs with `GATED` end when the file `open` is in it."""
    with reachable_directory() as shared:
        yield shared


GATED = ("sh", "-c", "echo begun; until [ -e /gate/open ]; do sleep 0.02; done; echo done")


def follow(job: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "turnout.cli.main", "logs", job, "-f"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": python_path()}
    )


def test_a_job_of_tia_is_followed_to_its_end(service, gate, run_turnout):
    service.create("gated", *GATED, PackageDir=[f"file://{gate}:/gate"])
    follower = follow("gated")
    assert follower.stdout
    assert follower.stdout.readline() == "begun\n"
    assert run_turnout("logs", "gated").out == "begun\n"
    assert service.native("/jobs/gated")["state"] == "running"
    (gate / "open").touch()
    assert follower.communicate(timeout=60)[0] == "done\n"
    assert follower.returncode == 0
    assert run_turnout("logs", service.describe("gated").Id).out == "begun\ndone\n"


def test_lines_of_several_replicas_begin_with_their_names(service, gate):
    machines = dict.fromkeys(("MasterType", "WorkerType", "ParameterServerType"), "1U1G0P")
    crowd = {"ScaleTier": "CUSTOM", "WorkerCount": 1, "ParameterServerCount": 1} | machines
    service.create("crowd", *GATED, PackageDir=[f"file://{gate}:/gate"], **crowd)
    follower = follow("crowd")
    assert follower.stdout
    begun = sorted(follower.stdout.readline() for _ in range(3))
    assert begun == ["[master-0] begun\n", "[ps-0]     begun\n", "[worker-0] begun\n"]
    (gate / "open").touch()
    assert "[master-0] done\n" in follower.communicate(timeout=60)[0]


def test_a_search_points_to_its_trials(cloud, service, run_turnout):
    trial = jobs.container(command=["sh", "-c", 'echo "$1"; echo TURNOUT_METRIC m=1', "sh"])
    search = {
        "displayName": "search",
        "studySpec": {
            "metrics": [{"metricId": "m", "goal": "MAXIMIZE"}],
            "parameters": [{"parameterId": "x", "categoricalValueSpec": {"values": ["only"]}}],
            "algorithm": "RANDOM_SEARCH",
        },
        "maxTrialCount": 1,
        "parallelTrialCount": 1,
        "trialJobSpec": {"workerPoolSpecs": [trial]},
    }
    assert cloud.send("POST", "hyperparameterTuningJobs", search).status == 200
    assert service.wait("search")["state"] == "succeeded"
    told = run_turnout("logs", "search")
    assert (told.code, told.out) == (1, "")
    assert (
        "search is a search, and only its trials have logs: try `turnout logs search --trial 1`" in told.err
    )
    assert run_turnout("logs", "search", "--trial=1").out == "--x=only\nTURNOUT_METRIC m=1\n"
    assert "search has no trial 7; its trials are 1 to 1" in run_turnout("logs", "search", "--trial=7").err


def test_no_such_job(service, run_turnout):
    for reference in ("nope", "a/b", "..", "é", "1846031847234928640"):
        for words in (["logs"], ["logs", "-f"], ["explain"]):
            outcome = run_turnout(*words, reference)
            assert (outcome.code, outcome.out) == (1, "")
            assert outcome.err.startswith(f"turnout: no job {reference}: use its name")
    plain = run_turnout("logs", "nope", "--trial=1")
    assert "no job nope" in plain.err
    quoted = urllib.parse.quote("a/b", safe="")
    with pytest.raises(OSError, match="404"):
        service.native(f"/jobs/{quoted}/shells")
