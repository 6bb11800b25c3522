"""moxing as it is in a job: in an archive at the end of PYTHONPATH."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateways.s3.conftest import ROOT, Gateway, open_gateway
from turnout.runner.archive import modules_zip


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("modules") / "modules.zip"
    path.write_bytes(modules_zip())
    return path


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with open_gateway() as one:
        yield one


class Job:
    """Runs programs with the variables of a job."""

    def __init__(self, modules: Path, directory: Path, gateway: Gateway | None = None) -> None:
        self.directory = directory
        self.env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(modules), "HOME": str(directory)}
        self.env |= {"TMPDIR": str(directory)}
        if gateway:
            self.env |= {
                "S3_ENDPOINT": gateway.url,
                "S3_USE_HTTPS": "0",
                "ACCESS_KEY_ID": ROOT.id,
                "SECRET_ACCESS_KEY": ROOT.secret,
            }

    def run(
        self, program: str, python: str = sys.executable, path: Path | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """`path`: a directory of packages before moxing's."""
        mine = dict(self.env)
        if path:
            mine["PYTHONPATH"] = f"{path}{os.pathsep}{mine['PYTHONPATH']}"
        return subprocess.run(
            [python, "-W", "error", "-c", f"import moxing as mox\n{program}"],
            env=mine | env,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def __call__(self, program: str, **options: str) -> str:
        done = self.run(program, **options)  # pyright: ignore[reportArgumentType]
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == ""
        return done.stdout


@pytest.fixture
def job(modules: Path, gateway: Gateway, tmp_path: Path) -> Job:
    return Job(modules, tmp_path, gateway)
