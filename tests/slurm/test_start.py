"""What runs first on a node: `start.py`, by the interpreters that nodes may have."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.harness import RUNNER, serving
from turnout.engines.slurm.script import start_program

STEP = {
    "SLURM_PROCID": "3",
    "SLURM_STEP_ID": "0",
    "SLURM_NTASKS": "4",
    "SLURM_JOB_NODELIST": "n2",
    "PMI_RANK": "3",
}
JOB = "SLURM_JOB_ID=7\nSLURM_JOB_NODELIST=n[1-2]\nSLURM_JOB_NAME=a=b"
VERSIONS = ("3.8", "3.13")


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "runner.py").write_text(RUNNER.format(directory=str(tmp_path)))
    (tmp_path / "program.py").write_text("")
    with serving("127.0.0.1", tmp_path) as url:
        yield url


def digest(directory: Path) -> str:
    return hashlib.sha256((directory / "runner.py").read_bytes()).hexdigest()


def start(
    directory: Path, endpoint: str, archive: str = "", python: str = sys.executable, sha: str = "", **env: str
) -> "subprocess.CompletedProcess[str]":
    arguments = (endpoint, "gpu/17.1", "worker", sha or digest(directory), archive)
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(directory), "TURNOUT_SLURM_JOB": JOB, **STEP, **env}
    return subprocess.run(
        [python, "-c", start_program(), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def record(directory: Path) -> dict[str, dict[str, str]]:
    return json.loads((directory / "worker-3.json").read_text())


def test_it_fetches_the_runner_once_for_each_node(tmp_path: Path, endpoint: str):
    for _ in range(2):
        done = start(tmp_path, endpoint)
        assert (done.returncode, done.stderr) == (0, "")
    assert len((tmp_path / "requests").read_text().splitlines()) == 1
    environment = record(tmp_path)["env"]
    slurm = {name: value for name, value in environment.items() if name.startswith(("SLURM", "PMI"))}
    assert slurm == {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_NAME": "a=b"}
    assert "TURNOUT_SLURM_JOB" not in environment


def test_it_uses_the_runner_of_a_shared_directory(tmp_path: Path):
    (tmp_path / "runner.py").write_text(RUNNER.format(directory=str(tmp_path)))
    (tmp_path / "program.py").write_text("")
    assert start(tmp_path, "http://127.0.0.1:9", str(tmp_path / "runner.py")).returncode == 0


def test_a_broken_file_is_fetched_again(tmp_path: Path, endpoint: str):
    assert start(tmp_path, endpoint).returncode == 0
    [cached] = tmp_path.glob("turnout-*/runner-*.pyz")
    cached.write_text("half of i")
    assert start(tmp_path, endpoint, str(cached)).returncode == 0
    assert hashlib.sha256(cached.read_bytes()).hexdigest() == digest(tmp_path)


def test_an_archive_is_unpacked_and_compiled_once_for_each_node(tmp_path: Path):
    archive = tmp_path / "runner.py"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("__main__.py", "import part, sys; print(sys.argv[0], part.__cached__)")
        file.writestr("part.py", "")
    found = [start(tmp_path, "http://127.0.0.1:9", str(archive)) for _ in range(2)]
    [directory] = tmp_path.glob("turnout-*/runner-*")
    compiled = directory / f"__pycache__/part.{sys.implementation.cache_tag}.pyc"
    assert {(one.returncode, one.stdout) for one in found} == {(0, f"{directory} {compiled}\n")}
    assert compiled.exists()
    compiled.unlink()
    assert start(tmp_path, "http://127.0.0.1:9", str(archive)).returncode == 0
    assert compiled.exists()
    archive.rename(tmp_path / "elsewhere")
    sha = directory.name.split("-")[1]
    assert start(tmp_path, "http://127.0.0.1:9", str(archive), sha=sha).returncode == 0


def test_runners_that_nobody_used_for_long_are_removed(tmp_path: Path, endpoint: str):
    assert start(tmp_path, endpoint).returncode == 0
    [cached] = tmp_path.glob("turnout-*/runner-*.pyz")
    old, recent = (cached.with_name(f"runner-{letter * 64}.pyz") for letter in "ab")
    unpacked = cached.with_name("runner-c-cpython-311")
    for path in (old, recent):
        path.write_text("an earlier version")
    (unpacked / "runner").mkdir(parents=True)
    for path in (old, unpacked, cached):
        os.utime(path, (0, 0))
    assert start(tmp_path, endpoint).returncode == 0
    assert set(cached.parent.iterdir()) == {cached, recent}
    assert cached.stat().st_mtime > 0


def test_a_directory_that_others_can_write_to_is_not_used(tmp_path: Path, endpoint: str):
    assert start(tmp_path, endpoint).returncode == 0
    [cache] = tmp_path.glob("turnout-*")
    cache.chmod(0o777)
    assert start(tmp_path, endpoint).returncode == 0
    assert len((tmp_path / "requests").read_text().splitlines()) == 2


def test_a_runner_that_the_service_does_not_have(tmp_path: Path, endpoint: str):
    done = start(tmp_path, endpoint, sha="0" * 64)
    assert done.returncode == 75
    assert done.stderr == f"turnout: {endpoint}/runner/v1/{'0' * 64}.pyz cannot be fetched: 404 Not Found\n"


def test_a_service_that_is_away_is_asked_again(tmp_path: Path):
    (tmp_path / "runner.py").write_text("")
    done = start(tmp_path, "http://127.0.0.1:9", TURNOUT_PATIENCE="1")
    assert done.returncode == 75
    assert [line.partition(": ")[2].split(" cannot")[1] for line in done.stderr.splitlines()] == [
        " be fetched, trying again: <urlopen error [Errno 111] Connection refused>",
        " be fetched: <urlopen error [Errno 111] Connection refused>",
    ]


def interpreter(version: str) -> str:
    found = [
        *Path("/root/.pyenv/versions").glob(f"{version}.*/bin/python3"),
        shutil.which(f"python{version}"),
    ]
    return str(found[0]) if found[0] else ""


@pytest.mark.parametrize("version", VERSIONS)
def test_other_interpreters(tmp_path: Path, endpoint: str, version: str):
    python = interpreter(version)
    if not python:
        pytest.skip(f"there is no Python {version} here")
    done = start(tmp_path, endpoint, python=python)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interpreter_that_is_too_old_is_named(tmp_path: Path, endpoint: str):
    python = interpreter("3.6")
    if not python:
        pytest.skip("there is no Python 3.6 here")
    done = start(tmp_path, endpoint, python=python)
    assert done.returncode == 75
    assert "is Python 3.6" in done.stderr
    assert "needs 3.8 or newer" in done.stderr
