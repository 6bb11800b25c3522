"""Everything in examples/ runs as it stands."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import KEY, ROOT, Service, reachable_directory, running
from tests.whole.test_frameworks import mounted

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running() as started:
        yield started.start()


def run(service: Service, *command: str, cwd: Path = EXAMPLES) -> str:
    """What it prints. The programs of this environment are on its PATH."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TURNOUT_ENDPOINT": service.endpoint,
        "TURNOUT_KEY": f"{KEY.id}:{KEY.secret}",
        "NO_PROXY": "127.0.0.1",
    }
    ended = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ([sys.executable, "tia/sdk.py"], "rank 2 of 3\nSucceeded"),
        (["tia/tictl.sh"], "with ['--epochs', '3']\n42"),
        ([sys.executable, "modelarts/sdk.py"], "rank 1 of 2\nCompleted"),
        (["modelarts/curl.sh"], "hello from curl\n"),
        ([sys.executable, "vertex/sdk.py"], "hello from "),
        (["vertex/gcloud.sh"], "hello from gcloud"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_an_example(service: Service, command: list[str], expected: str):
    if command[0].endswith("gcloud.sh") and not shutil.which("gcloud"):
        pytest.skip("gcloud is not installed")
    assert expected in run(service, *command)


def test_a_search(service: Service):
    turnout = [sys.executable, "-m", "turnout.cli.main"]
    run(service, *turnout, "submit", "search/search.yaml", "--follow")
    assert "best trial" in run(service, *turnout, "explain", "example-search")


def test_distributed_training_with_torch():
    """The packages are mounted, because the users of jobs may not reach the interpreter of the slow environment."""
    packages = next((ROOT / ".venv-slow" / "lib").glob("python3.*/site-packages"))
    with reachable_directory() as directory, mounted(packages, directory / "packages") as reachable:
        runtime = f'[runtimes.torch]\nmounts = {{ "/opt/packages" = "{reachable}" }}\n'
        with running(f'[images]\n"torch" = "torch"\n{runtime}') as service:
            service.start()
            turnout = [
                sys.executable,
                "-m",
                "turnout.cli.main",
                "run",
                "--replicas",
                "2",
                "--image",
                "torch:2",
            ]
            program = ["env", "PYTHONPATH=/opt/packages", "python3", "train.py"]
            printed = run(service, *turnout, "--", *program, cwd=EXAMPLES / "distributed")
    assert "rank 0 of 2: loss " in printed
    assert "rank 1 of 2: loss " in printed
