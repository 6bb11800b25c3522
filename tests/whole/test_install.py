"""The wheel, installed on its own: its files and programs are complete, and it serves a first job."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.running import ROOT, free_port, reachable_directory

pytestmark = pytest.mark.slow


def test_the_wheel_serves_a_first_job():
    with reachable_directory() as here:
        build = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--no-index",
        ]
        subprocess.run([*build, "--wheel-dir", str(here), str(ROOT)], check=True)
        [wheel] = here.glob("turnout-*.whl")
        bin = install(wheel, here / "venv")
        where = subprocess.run(
            [bin / "python", "-c", "import turnout; print(turnout.__file__)"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert where.stdout.startswith(str(here)), "not the clone's"

        port = free_port()
        endpoint = f"http://127.0.0.1:{port}"
        environment = os.environ | {
            "HOME": str(here),
            "TURNOUT_ENDPOINT": endpoint,
            "TURNOUT_DATA": str(here / "data"),
        }
        environment.pop("PYTHONPATH", None)
        serve = [bin / "turnout", "serve", "--port", str(port)]
        with subprocess.Popen(serve, env=environment, cwd="/", stdout=subprocess.PIPE, text=True) as serving:
            assert serving.stdout is not None
            assert "listens on" in serving.stdout.readline()
            job = [bin / "tictl", "job", "create", "first", "--command=echo hello from the wheel", "--wait"]
            assert subprocess.run(job, env=environment, cwd="/", check=False).returncode == 0
            logs = subprocess.run(
                [bin / "turnout", "logs", "first"],
                env=environment,
                cwd="/",
                capture_output=True,
                text=True,
                check=True,
            )
            assert logs.stdout == "hello from the wheel\n"
            serving.terminate()
            assert serving.wait(20) == 0


def install(wheel: Path, target: Path) -> Path:
    """Its directory of programs. The dependencies are those of this environment, so that nothing is downloaded."""
    venv.create(target, with_pip=True)
    pip = [target / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", str(wheel)], check=True)
    [packages] = target.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return target / "bin"
