"""Root and the jobs of other projects, with both command lines against a real service."""

import json
import re
from collections.abc import Callable

import pytest

from tests.cli.conftest import Run
from tests.dialects.vertex import jobs
from tests.dialects.vertex.driving import Cloud
from tests.running import KEY, Service

ROOT = f"{KEY.id}:{KEY.secret}"


@pytest.fixture(autouse=True)
def as_root(service: Service, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TURNOUT_ENDPOINT", service.endpoint)
    monkeypatch.setenv("TURNOUT_KEY", ROOT)


@pytest.fixture
def as_member_of(run_turnout: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def become(project: str) -> None:
        monkeypatch.setenv("TURNOUT_KEY", ROOT)
        key = json.loads(run_turnout("keys", "create", f"--project={project}", "--output=json").out)
        monkeypatch.setenv("TURNOUT_KEY", f"{key['id']}:{key['secret']}")

    return become


def test_root_finds_a_job_wherever_it_is(
    run_tictl: Run, run_turnout: Run, as_member_of: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
):
    as_member_of("vision")
    assert run_tictl("job", "create", "theirs", "--command=echo hello", "--wait").code == 0
    monkeypatch.setenv("TURNOUT_KEY", ROOT)
    for words in (
        ["logs", "theirs", "--no-time-prefix"],
        ["logs", "theirs", "--no-time-prefix", "--project=vision"],
    ):
        assert run_tictl(*words).out == "hello\n"
    assert run_turnout("logs", "theirs").out == "hello\n"
    described = run_tictl("job", "describe", "theirs", "--output=json")
    assert [job["Name"] for job in json.loads(described.out)] == ["theirs"]
    explained = run_turnout("explain", "theirs")
    assert (explained.code, explained.err) == (0, "")
    assert "theirs" not in run_tictl("job", "list").out
    assert "theirs" in run_tictl("job", "list", "--project=vision").out
    assert run_turnout("explain", "theirs", "--project=other").code == 1
    assert run_tictl("job", "describe", "theirs", "--project=other").code == 1
    assert run_tictl("job", "delete", "theirs").out == "The job theirs is deleted successfully.\n"
    assert run_turnout("explain", "theirs").code == 1


def test_root_creates_in_another_project(run_tictl: Run, run_turnout: Run):
    assert run_tictl("job", "create", "given", "--command=true", "--wait", "--project=audio").code == 0
    assert json.loads(run_turnout("explain", "given", "--output=json").out)["project"] == "audio"


def test_its_own_job_comes_first(
    run_tictl: Run, run_turnout: Run, as_member_of: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
):
    assert run_tictl("job", "create", "both", "--command=true", "--wait").code == 0
    as_member_of("vision")
    assert run_tictl("job", "create", "both", "--command=true", "--wait").code == 0
    monkeypatch.setenv("TURNOUT_KEY", ROOT)
    assert json.loads(run_turnout("explain", "both", "--output=json").out)["project"] == "default"
    assert run_tictl("job", "delete", "both").code == 0
    assert json.loads(run_turnout("explain", "both", "--output=json").out)["project"] == "vision"


def test_other_keys_stay_in_their_project(
    run_tictl: Run, run_turnout: Run, as_member_of: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
):
    assert run_tictl("job", "create", "roots", "--command=true", "--wait").code == 0
    as_member_of("vision")
    assert run_tictl("job", "list", "--project=vision").code == 0
    for run, words in (
        (run_tictl, ["job", "list", "--project=default"]),
        (run_turnout, ["explain", "roots", "--project=default"]),
    ):
        refused = run(*words)
        assert (refused.code, refused.out) == (1, "")
        assert "belongs to project vision and may not act in default" in refused.err
    for run, words in (
        (run_tictl, ["job", "describe", "roots"]),
        (run_tictl, ["job", "delete", "roots"]),
        (run_turnout, ["explain", "roots"]),
        (run_turnout, ["logs", "roots"]),
        (run_turnout, ["stop", "roots"]),
        (run_turnout, ["delete", "roots"]),
    ):
        assert "no job roots" in run(*words).err
    monkeypatch.setenv("TURNOUT_KEY", ROOT)
    assert run_turnout("explain", "roots").code == 0


def test_a_name_that_several_jobs_have_is_the_newest(service: Service, run_turnout: Run):
    cloud = Cloud(service)
    made = [cloud.shell(f"echo {number}", displayName="twice") for number in range(2)]
    older, newest = (cloud.wait(one["name"])["name"].rpartition("/")[2] for one in made)
    shown = run_turnout("logs", "twice")
    assert shown.out == "1\n"
    assert f"several jobs are named twice: this is the newest, {newest}; older: {older} (" in shown.err
    assert json.loads(run_turnout("explain", "twice", "--output=json").out)["id"] == newest
    assert run_turnout("logs", older).err == ""


def test_stop_and_delete_jobs_of_any_api(service: Service, run_turnout: Run):
    cloud = Cloud(service)
    made = cloud.shell("sleep 1000", displayName="endless")
    stopped = run_turnout("stop", "endless", "nothing")
    assert stopped.code == 1
    assert re.match(r"endless \(\d+\) of project \S+ is stopping\.\n$", stopped.out)
    assert "no job nothing" in stopped.err
    assert cloud.wait(made["name"])["state"] == "JOB_STATE_CANCELLED"
    assert "endless" in run_turnout("stop", "endless").err
    assert run_turnout("delete", "endless").out.endswith(" is deleted.\n")
    assert cloud.send("GET", f"/v1/{made['name']}").status == 404


def test_messages_are_in_the_words_of_vertex(service: Service, run_turnout: Run):
    cloud = Cloud(service)
    gpus = jobs.container(command=["true"])
    gpus["machineSpec"] |= {"acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 1}
    status, code, message = cloud.send("POST", "customJobs", jobs.job(gpus)).error
    assert (status, code) == (429, "RESOURCE_EXHAUSTED")
    assert message.startswith("Resources are insufficient in region: us-central1. Try a different region")
    assert message.endswith("1 GPU requested, but there are none.")
    made = cloud.shell("echo oh; exit 3", displayName="fails-in-vertex")
    cloud.wait(made["name"])
    explained = run_turnout("explain", "fails-in-vertex").out
    assert re.match(r"fails-in-vertex \(\d+\) in us-central1: failed\n", explained)
    assert 'to use another, set [runtimes.plain] python = "…"' in " ".join(explained.split())
    shown = explained + json.dumps(cloud.entries(made))
    for word in ("ap-beijing", "cluster", "gang"):
        assert word not in shown
    assert not re.search(r"\blead\b", shown)
