"""Environments of a whole service: it is killed while it makes one, is no root, and gives one to jobs of each API."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dialects.modelarts.conftest import sdk_home as sdk_home
from tests.dialects.modelarts.driving import Cloud as ModelArts
from tests.dialects.vertex import jobs
from tests.dialects.vertex.driving import Cloud as Vertex
from tests.running import ROOT, Service, python_path, running
from tests.wheels import make_wheel
from turnout.paths import Paths

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NOBODY = 65534
TRAIN = """
import sys, numpy, sklearn
from sklearn.linear_model import LinearRegression
x = numpy.arange(10).reshape(-1, 1)
print("slope", LinearRegression().fit(x, 3 * x.ravel()).coef_[0].round(3), "by", sklearn.__version__)
"""
PRESET = "us-docker.pkg.dev/vertex-ai/training/sklearn-cpu.1-6:latest"


def settings(directory: Path) -> str:
    """A runtime whose packages are in a directory of the test."""
    make_wheel(directory / "wheels", "tiny")
    return f'[runtimes]\noffline = true\nfind_links = ["{directory}/wheels"]\n[runtimes.default]\npackages = ["tiny"]\n'


@pytest.mark.parametrize("point", ["environment.built", "environment.protected"])
def test_the_service_is_killed_while_it_makes_one(point: str) -> None:
    with running() as service:
        service.config.write_text(settings(service.data.parent))
        service.start(TURNOUT_KILL_AT=point)
        service.create("waits", "python", "-c", "import tiny; print(tiny.VERSION)")
        service.wait_for_death()
        directory = Paths(service.data).environments
        assert [path.name[:8] for path in directory.iterdir() if path.name[:8] == ".making-"] == [".making-"]
        service.start()
        assert service.wait("waits")["state"] == "succeeded"
        assert [line.Log for line in service.logs("waits")] == ["1.0"]
        assert len([path for path in directory.iterdir() if path.name not in (".cache", ".shims")]) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("sandbox", ["bubblewrap", "none"])
def test_an_ordinary_user(sandbox: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(user=NOBODY) as service:
        here = service.data.parent
        service.config.write_text(f'{settings(here)}[engines.local]\nsandbox = "{sandbox}"\n')
        monkeypatch.setattr("tests.running.python_for", lambda _: installed(here / "venv"))
        service.start()
        change = "open(tiny.__file__, 'a')"
        service.create("own", "python", "-c", f"import tiny; print(tiny.VERSION); {change}")
        ended = service.wait("own")
        lines = [line.Log for line in service.logs("own")]
        assert (ended["state"], lines[:1]) == ("failed", ["1.0"]), ended
        assert any("Permission denied" in line or "Read-only" in line for line in lines)


def installed(directory: Path) -> str:
    """The Python of an environment that every user can reach, with Turnout and uv."""
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", directory], check=True)
    [packages] = directory.glob("lib/python3*/site-packages")
    (packages / "turnout.pth").write_text(python_path().replace(os.pathsep, "\n"))
    shutil.copy(ROOT / ".venv/bin/uv", directory / "bin" / "uv")
    return str(directory / "bin" / "python")


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """It installs the preset of scikit-learn 1.6 from PyPI; the two others ask for the same."""
    packages = 'packages = ["scikit-learn==1.6.*", "pandas"]'
    text = f'[runtimes]\nmake = true\n[runtimes."tia-1.7.0"]\n{packages}\n[runtimes.sklearn]\n{packages}\n'
    with running(text + '[images]\n"team/sklearn:1" = "sklearn"\n') as one:
        yield one.start()


def test_a_preset_runs_by_each_api(service: Service, sdk_home: None) -> None:
    vertex, modelarts = Vertex(service), ModelArts(service)
    shown = vertex.create(jobs.container(imageUri=PRESET, command=["python", "-c", TRAIN]))
    job_id = shown["name"].rpartition("/")[2]
    service.create("by-tia", "python", "-c", TRAIN)
    command = "python -c " + json.dumps(TRAIN.replace("\n", ";").strip(";").replace(";;", ";"))
    task = modelarts.create("by-modelarts", command, algorithm={"engine": {"image_url": "team/sklearn:1"}})
    waited = service.native(f"/jobs/{job_id}/wait?for=ended&timeout=200&project={vertex.project}", 260)
    assert waited["state"] == "succeeded", waited
    told = service.native(f"/jobs/{job_id}/explain?project={vertex.project}")
    events = " ".join(event["message"] for event in told["events"])
    assert "sklearn-cpu.1-6 asks for scikit-learn 1.6; here it runs on Python 3" in events
    assert "the runtime sklearn-cpu.1-6 is Python 3" in events
    assert "scikit-learn==1.6." in events
    assert service.wait("by-tia")["state"] == "succeeded"
    assert service.logs("by-tia")[-1].Log.startswith("slope 3.0 by 1.6.")
    assert service.wait("by-modelarts")["state"] == "succeeded"
    assert "slope 3.0 by 1.6." in modelarts.log(task.metadata.id)
    environments = [
        path for path in Paths(service.data).environments.iterdir() if not path.name.startswith(".")
    ]
    assert len(environments) == 1, "they ask for the same"
