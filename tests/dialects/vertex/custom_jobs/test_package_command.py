"""Python packages, installed and run for real by /bin/sh."""

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from turnout.dialects.vertex.custom_jobs import package_command

INTERPRETERS = {"the host's": "/usr/bin/python3", "an environment's": sys.executable}
METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}"
TASK = """
import dep, os, sys
print("task", sys.argv[1:], dep.VERSION, os.environ["GREETING"])
sys.exit(int(sys.argv[1]))
"""
RECORD_BUILD = """
import os, sys
if "bdist_wheel" in sys.argv:
    print("built", file=open(os.environ["BUILDS"], "a"))
"""


def wheel(directory: Path, name: str, files: dict[str, str], version: str = "1", requires: str = "") -> str:
    info = f"{name}-{version}.dist-info"
    metadata = {
        f"{info}/METADATA": METADATA.format(name=name, version=version, requires=requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    directory.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in (files | metadata).items():
            archive.writestr(path, text)
    return f"{directory.name}/{name}-{version}-py3-none-any.whl"


def sdist(directory: Path, name: str, files: dict[str, str]) -> str:
    """Named as Google's SDK names what it uploads. Its builds are recorded in the file BUILDS."""
    file = f"aiplatform-2026-01-02-03:04:05.678-{name}-0.1.tar.gz"
    fields = f"name={name!r}, version='0.1', packages=[{name!r}], install_requires=['dep']"
    setup = f"{RECORD_BUILD}\nfrom setuptools import setup\nsetup({fields})"
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(directory / file, "w:gz") as archive:
        for path, text in ({"setup.py": setup} | files).items():
            member = tarfile.TarInfo(f"{name}-0.1/{path}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return f"{directory.name}/{file}"


class Room:
    """What a replica has: a home, and its packages below TURNOUT_ROOT. There is no index to fetch from."""

    def __init__(self, tmp_path: Path, python: str = "/usr/bin/python3") -> None:
        self.packages = tmp_path / "root/opt/packages"
        (tmp_path / "bin").mkdir()
        shim = tmp_path / "bin/python3"
        shim.write_text(f'#!/bin/sh\nexec {python} "$@"\n')
        shim.chmod(0o755)
        (tmp_path / "home").mkdir()
        self.env = {
            "PATH": f"{tmp_path}/bin:{os.defpath}",
            "HOME": f"{tmp_path}/home",
            "TMPDIR": str(tmp_path),
            "TURNOUT_ROOT": f"{tmp_path}/root",
            "PIP_NO_INDEX": "1",
            "PIP_CONFIG_FILE": os.devnull,
            "GREETING": "hello",
            "BUILDS": f"{tmp_path}/builds",
        }

    def run(self, files: list[str], module: str, *args: str) -> subprocess.CompletedProcess[str]:
        argv = package_command.command(files, module, args)
        return subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=100)

    @property
    def builds(self) -> int:
        return len(Path(self.env["BUILDS"]).read_text().splitlines())


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_a_module_of_a_wheel_that_needs_another(tmp_path: Path, interpreter: str):
    room = Room(tmp_path, INTERPRETERS[interpreter])
    dep = wheel(room.packages / "0", "dep", {"dep.py": "VERSION = 'one'"})
    files = {"trainer/__init__.py": "", "trainer/task.py": TASK}
    trainer = wheel(room.packages / "1", "trainer", files, requires="Requires-Dist: dep\n")
    done = room.run([dep, trainer], "trainer.task", "0", "a b", "$(x) '\"*")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == """task ['0', 'a b', '$(x) \\'"*'] one hello"""


def test_a_source_package_as_the_sdk_uploads_it(room: Room):
    dep = wheel(room.packages / "0", "dep", {"dep.py": "VERSION = 'one'"})
    trainer = sdist(room.packages / "1", "trainer", {"trainer/__init__.py": "", "trainer/task.py": TASK})
    done = room.run([trainer, dep], "trainer.task", "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "task ['0'] one hello"
    assert room.builds == 1


def test_a_replica_that_starts_again_installs_only_what_has_changed(room: Room):
    dep = wheel(room.packages / "0", "dep", {"dep.py": "VERSION = 'one'"})
    trainer = sdist(room.packages / "1", "trainer", {"trainer/__init__.py": "", "trainer/task.py": TASK})
    first = room.run([trainer, dep], "trainer.task", "0")
    assert "Successfully installed" in first.stdout, first.stderr
    again = room.run([trainer, dep], "trainer.task", "3", "again")
    assert (again.stdout, again.returncode) == ("task ['3', 'again'] one hello\n", 3)
    wheel(room.packages / "0", "dep", {"dep.py": "VERSION = 'two'"})
    changed = room.run([trainer, dep], "trainer.task", "0")
    assert changed.stdout.splitlines()[-1] == "task ['0'] two hello"
    assert room.builds == 2


def test_an_installation_that_failed_is_made_again(room: Room):
    needs = "Requires-Dist: dep\n"
    trainer = wheel(room.packages / "0", "trainer", {"task.py": TASK}, requires=needs)
    assert room.run([trainer], "task", "0").returncode == 1
    dep = wheel(room.packages / "1", "dep", {"dep.py": "VERSION = 'one'"})
    room.env |= {"PIP_FIND_LINKS": str((room.packages / dep).parent)}
    assert room.run([trainer], "task", "0").stdout.splitlines()[-1] == "task ['0'] one hello"


def test_the_exit_code_is_the_modules(room: Room):
    dep = wheel(room.packages / "0", "dep", {"dep.py": "VERSION = 1", "task.py": TASK})
    assert room.run([dep], "task", "7").returncode == 7


def test_no_variable_of_the_user_is_changed(room: Room):
    names = ("count", "file", "files", "log", "module", "name", "number", "place", "prefix", "version")
    user = {name: f"the user's {name}" for name in names}
    room.env |= user
    show = "import os\nprint('\\n'.join(f'{name}={text}' for name, text in os.environ.items()))"
    done = room.run([wheel(room.packages / "0", "dep", {"task.py": show})], "task")
    assert {f"{name}={text}" for name, text in user.items()} <= set(done.stdout.splitlines()), done


def test_the_package_comes_before_what_the_interpreter_has(room: Room):
    """Whatever its version is."""
    first = wheel(room.packages / "0", "pip", {"pip.py": "print('mine')"}, version="0.0.1")
    assert room.run([first], "pip").stdout.splitlines()[-1] == "mine"


def test_what_the_interpreter_has_stays(tmp_path: Path):
    """An environment's own package is hidden, not uninstalled: other jobs have the same environment."""
    environment = tmp_path / "env"
    venv = [INTERPRETERS["the host's"], "-m", "venv", "--without-pip", "--system-site-packages", environment]
    subprocess.run(venv, check=True)
    [site] = environment.glob("lib/python3*/site-packages")
    built_in = wheel(tmp_path, "dep", {"dep.py": "VERSION = 'built in'"}, version="9")
    with zipfile.ZipFile(tmp_path.parent / built_in) as archive:
        archive.extractall(site)
    (site / "dep-9.dist-info/RECORD").write_text("dep.py,,\n")
    room = Room(tmp_path, f"{environment}/bin/python3")
    files = {"dep.py": "VERSION = 'mine'", "task.py": TASK}
    mine = wheel(room.packages / "0", "dep", files)
    assert room.run([mine], "task", "0").stdout.splitlines()[-1] == "task ['0'] mine hello"
    assert (site / "dep.py").read_text() == "VERSION = 'built in'"


def test_what_a_package_needs_and_nobody_has(room: Room):
    trainer = wheel(
        room.packages / "0", "trainer", {"task.py": TASK}, requires="Requires-Dist: no-such-package\n"
    )
    done = room.run([trainer], "task", "0")
    assert done.returncode == 1
    assert "no-such-package" in done.stderr


def test_a_package_that_is_none(room: Room):
    (room.packages / "0").mkdir(parents=True)
    (room.packages / "0/x.tar.gz").write_text("no")
    done = room.run(["0/x.tar.gz"], "task")
    assert done.returncode != 0
    assert "x.tar.gz" in done.stderr


def test_an_interpreter_without_pip(room: Room, tmp_path: Path):
    (tmp_path / "bin/python3").write_text("#!/bin/sh\nexit 1\n")
    done = room.run(["0/x.whl"], "task")
    assert done.returncode == 1
    assert "python3 has no pip" in done.stderr
