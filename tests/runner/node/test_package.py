"""The runner as it is sent to nodes: one file, the standard library, every Python from 3.8 on."""

import ast
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.runner.node.conftest import Start
from tests.runner.node.fake_gateway import FakeGateway
from tests.runner.node.test_program import shell
from turnout.runner.archive import SOURCES, build, remove_others

MODULES = sorted(SOURCES.rglob("*.py"))
VERSIONS = ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_it_imports_the_standard_library_and_itself(path: Path):
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            assert {alias.name.partition(".")[0] for alias in node.names} <= sys.stdlib_module_names
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 1 or (node.module or "").partition(".")[0] in sys.stdlib_module_names
            assert node.level <= 1


def test_it_needs_python_3_8_at_most():
    vermin = [sys.executable, "-c", "import vermin; vermin.main()"]
    command = [*vermin, "--no-tips", "--target=3.8-", "--violations", str(SOURCES)]
    done = subprocess.run(command, capture_output=True, text=True)
    if "No module named 'vermin'" in done.stderr:
        pytest.fail(
            "vermin is missing: it belongs to the group `dev` of pyproject.toml (make setup installs it)"
        )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_archive_depends_on_the_sources_only(tmp_path: Path):
    path, digest = build(tmp_path / "new" / "directory")
    assert path.name == f"runner-{digest}.pyz"
    again, _ = build(tmp_path / "other")
    assert again.read_bytes() == path.read_bytes()
    modified = path.stat().st_mtime_ns
    assert build(tmp_path / "new" / "directory") == (path, digest)
    assert path.stat().st_mtime_ns == modified
    assert [found.name for found in path.parent.iterdir()] == [path.name]
    with zipfile.ZipFile(path) as archive:
        names = {f"runner/{module.relative_to(SOURCES)}" for module in MODULES}
        assert set(archive.namelist()) == {"__main__.py", "runner/modules.zip", *names}


def test_runners_of_earlier_versions_are_removed(tmp_path: Path):
    path, digest = build(tmp_path)
    needed, old, torn = (tmp_path / name for name in ("runner-a.pyz", "runner-b.pyz", "runner-x.new"))
    for one in (needed, old, torn):
        one.touch()
    remove_others(tmp_path, {digest, "a"})
    assert set(tmp_path.iterdir()) == {path, needed}


def test_a_damaged_archive_is_replaced(tmp_path: Path):
    path, digest = build(tmp_path)
    path.write_bytes(b"half")
    assert build(tmp_path) == (path, digest)
    assert path.read_bytes() != b"half"


def find_python(version: str) -> str:
    """One on the PATH, or beside the interpreter of the tests, where pyenv puts them."""
    beside = sorted(Path(sys.base_prefix).parent.glob(f"{version}.*/bin/python"))
    found = str(beside[-1]) if beside else shutil.which(f"python{version}")
    if not found or "/shims/" in found:
        pytest.skip(f"Python {version} is not installed")
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_it_runs_on(version: str, gateway: FakeGateway, start_runner: Start):
    python = find_python(version)
    gateway.objects[0] = {"input": b"some input\n"}
    gateway.plan = lambda arrival: {
        **shell("cat input; python3 -V; echo err >&2; echo result > output; exit 3")(arrival),
        "env": {"PATH": f"{arrival['home']}/shims:/usr/bin:/bin"},
        "python_shims": True,
        "cwd": f"{arrival['home']}/copies/0",
        "mounts": [{"number": 0, "directory": "copies/0", "fetch": True, "save": True, "url": "obs://b/"}],
    }
    runner = start_runner(python=python)
    end = runner.wait_for_end()
    gateway.order("save")
    gateway.wait_for(lambda: gateway.saved)
    assert (end["cause"], end["code"]) == ("exit", 3)
    assert gateway.named("claim")[0]["python"].startswith(version)
    assert bytes(gateway.logs[0]).startswith(f"some input\nPython {version}".encode())
    assert bytes(gateway.logs[1]) == b"err\n"
    assert gateway.objects[0]["output"] == b"result\n"
    assert runner.finish() == 3
    assert runner.printed == ""


def test_the_interpreter_of_the_runtime_finds_its_environment(
    gateway: FakeGateway, start_runner: Start, tmp_path: Path
):
    venv.create(tmp_path / "venv", with_pip=False)
    gateway.plan = lambda arrival: {
        **shell('python -c "import sys; print(sys.prefix)"')(arrival),
        "env": {"PATH": f"{arrival['home']}/shims:/usr/bin:/bin"},
        "python_shims": True,
        "python": str(tmp_path / "venv/bin/python"),
    }
    runner = start_runner()
    runner.finish()
    assert bytes(gateway.logs[0]).decode().strip() == str(tmp_path / "venv")


def test_modules_for_programs_are_beside_the_shims(gateway: FakeGateway, start_runner: Start):
    gateway.plan = lambda arrival: {
        **shell('PYTHONPATH=$TURNOUT_MODULES python -c "import moxing; print(moxing.file.exists(chr(47)))"')(
            arrival
        ),
        "env": {
            "PATH": f"{arrival['home']}/shims:/usr/bin:/bin",
            "TURNOUT_MODULES": f"{arrival['home']}/shims/modules.zip",
        },
        "python_shims": True,
    }
    runner = start_runner()
    runner.finish()
    assert bytes(gateway.logs[0]) == b"True\n"


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7"])
def test_an_old_python_is_named(version: str, start_runner: Start):
    runner = start_runner(python=find_python(version))
    assert runner.wait() == 1
    assert runner.printed.startswith(f"turnout runner: Python 3.8 or newer is needed; this is {version}")
