"""The start script of a ModelArts program, with real shells and files."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from turnout.dialects.modelarts.program.script import EngineFamily, Start, command

SHOW = """
import json, os, sys
told = {name: os.environ.get(name) for name in ("PYTHONPATH", "WORKSPACE", "SET_BEFORE", "PWD", "MA_JOB_DIR")}
print(json.dumps({"args": sys.argv[1:], "cwd": os.getcwd(), "path": sys.path[0]} | told))
"""


class Container:
    """A place where the script runs as it would in the container; `python` is on its PATH."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.code = place / "code"
        self.job_dir = place / "user job dir"
        self.folder = self.job_dir / "demo-code"
        self.packages = place / "packages"
        self.bin = place / "bin"
        for path in (self.code, self.bin):
            path.mkdir()
        (self.bin / "python").symlink_to(sys.executable)
        self.write("train.py", SHOW)
        self.env = {"PATH": f"{self.bin}:/usr/bin:/bin", "TMPDIR": str(place)}

    def write(self, name: str, text: str) -> None:
        path = self.code / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def start(self, **details: object) -> Start:
        given = {"code": str(self.code), "folder": str(self.folder), "packages": str(self.packages)}
        given |= {} if "command" in details else {"boot_file": f"{self.folder}/train.py"}
        return Start(**(given | details))  # pyright: ignore[reportArgumentType]

    def run(
        self, *, env: dict[str, str] | None = None, **details: object
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(self.start(**details)),
            env=self.env | (env or {}),
            cwd=self.place,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def shown(self, **details: object) -> dict[str, object]:
        """What the program says of itself, by its last line."""
        done = self.run(**details)  # pyright: ignore[reportArgumentType]
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


def platform_lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    mark = "[ModelArts Service Log] "
    return [line.removeprefix(mark) for line in done.stdout.splitlines() if line.startswith(mark)]


def test_a_boot_file_runs_in_its_own_copy_of_the_code(container: Container):
    shown = container.shown(options=("--data_url=/in put", "--epochs=3"))
    assert shown["args"] == ["--data_url=/in put", "--epochs=3"]
    assert shown["cwd"] == shown["path"] == shown["WORKSPACE"] == shown["PWD"] == str(container.folder)
    assert shown["PYTHONPATH"] == f"{container.packages}:{container.job_dir}"


def test_the_copy_is_writable_where_the_code_is_not(container: Container):
    container.write("lib/deep.py", "")
    for path in (container.code / "lib" / "deep.py", container.code / "lib", container.code):
        path.chmod(0o555)
    container.shown()
    assert os.stat(container.folder).st_mode & 0o200
    assert os.stat(container.folder / "lib" / "deep.py").st_mode & 0o200


def test_where_the_code_lies_is_told_unless_the_user_has_said_so(container: Container):
    preset = {"MA_MOUNT_PATH": "/m", "MA_JOB_DIR": "/m/user-job-dir"}
    assert container.shown(env=preset)["MA_JOB_DIR"] == str(container.job_dir)
    assert container.shown(env=preset | {"MA_JOB_DIR": "/mine"})["MA_JOB_DIR"] == "/mine"


def test_the_working_directory_may_be_another(container: Container):
    assert container.shown(working_dir=str(container.place))["cwd"] == str(container.place)
    done = container.run(working_dir=f"{container.place}/none")
    assert done.returncode == 1
    assert platform_lines(done)[-1] == f"error: the working directory {container.place}/none does not exist"


@pytest.mark.parametrize("value", ["$(touch evil)", "`touch evil`", "a'b\"c", "-n", "*", "x\ny", "\\", ""])
def test_values_are_never_read_by_a_shell(container: Container, value: str):
    assert container.shown(options=(f"--a={value}", value))["args"] == [f"--a={value}", value]
    assert not list(container.place.rglob("evil"))


def test_the_exit_code_is_the_programs(container: Container):
    container.write("train.py", "import sys; sys.exit(37)")
    assert container.run().returncode == 37
    container.write("train.py", "import os; os.kill(os.getpid(), 9)")
    assert container.run().returncode == -9


def test_a_command_gets_a_shell_and_nothing_appended(container: Container):
    done = container.run(command='echo "$0" $# $PWD; exit 3', options=("--not-appended=1",))
    assert done.returncode == 3
    assert done.stdout.splitlines()[-1] == f"/bin/bash 0 {container.folder}"
    alone = container.run(command="pwd", code="", folder="")
    assert alone.stdout.splitlines()[-1] == str(container.place)


# Before the program.


def test_what_pre_start_exports_the_program_has(container: Container):
    container.write("ma-pre-start.sh", 'export SET_BEFORE="a \'b\' $(dirname "$0")"\ncd /\nexit 0\n')
    shown = container.shown(options=("--x=$y",))
    assert shown["SET_BEFORE"] == f"a 'b' {container.folder}"
    assert (shown["args"], shown["cwd"], shown["PWD"]) == (["--x=$y"], *[str(container.folder)] * 2)


def test_pre_start_lies_beside_the_boot_file(container: Container):
    container.write("sub/train.py", SHOW)
    container.write("sub/ma-pre-start.py", "open('here', 'w').close()")
    container.write("ma-pre-start.sh", "export SET_BEFORE=wrong")
    shown = container.shown(boot_file=f"{container.folder}/sub/train.py")
    assert shown["SET_BEFORE"] is None
    assert (container.folder / "here").exists()


@pytest.mark.parametrize(("name", "text"), [("ma-pre-start.sh", "exit 5"), ("ma-pre-start.py", "exit(5)")])
def test_a_pre_start_that_fails_is_the_end(container: Container, name: str, text: str):
    container.write(name, text)
    done = container.run()
    assert done.returncode == 5
    assert platform_lines(done)[-1] == f"error: {container.folder}/{name} failed (exit code 5)"


def test_requirements_are_installed_for_this_replica_alone(container: Container):
    (container.bin / "python").unlink()
    (container.bin / "python").write_text(PIP.format(python=sys.executable))
    (container.bin / "python").chmod(0o755)
    container.write("pip-requirements.txt", "only-here==1.0\n")
    container.write("train.py", "import only_here; print(only_here.__file__)")
    done = container.run()
    assert done.stdout.splitlines()[-1] == f"{container.packages}/only_here.py"


# Stands for pip, which would need a place to get packages from: it installs a module where it was told to.
PIP = """#!/bin/sh
[ "$2" = pip ] || exec {python} "$@"
test -f pip-requirements.txt && mkdir -p "$PIP_TARGET" && touch "$PIP_TARGET/only_here.py"
"""


def test_requirements_that_cannot_be_installed_are_the_end(container: Container):
    container.write("pip-requirements.txt", "./no-such-wheel.whl\n")
    done = container.run()
    assert done.returncode == 1
    said = "cannot install the packages of pip-requirements.txt (exit code 1)"
    assert platform_lines(done)[-1] == f"error: {said}"


# Several nodes.

PEERS = {
    "MASTER_ADDR": "127.64.0.1",
    "MASTER_PORT": "10001",
    "RANK": "1",
    "WORLD_SIZE": "2",
    "MA_TASK_NAME": "worker",
    "VC_TASK_INDEX": "1",
    "TF_CONFIG": '{"cluster":{"worker":["127.64.0.1:10000","127.64.0.2:10002"]},"task":{"type":"worker","index":1}}',
}


def test_pytorch_is_told_of_its_peers(container: Container):
    told = ["--init_method=tcp://127.64.0.1:10001", "--rank=1", "--world_size=2", "--x=1"]
    assert (
        container.shown(family=EngineFamily.PYTORCH, nodes=2, env=PEERS, options=("--x=1",))["args"] == told
    )
    assert container.shown(family=EngineFamily.PYTORCH, nodes=1, env=PEERS, options=("--x=1",))["args"] == [
        "--x=1"
    ]


def test_one_role_of_several_counts_for_itself(container: Container):
    cluster = '{"cluster":{"actor":["a:1"],"worker":["b:2","c:3"]},"task":{"type":"worker","index":1}}'
    env = PEERS | {"WORLD_SIZE": "3", "RANK": "2", "TF_CONFIG": cluster}
    told = ["--init_method=tcp://b:2", "--rank=1", "--world_size=2"]
    assert container.shown(family=EngineFamily.PYTORCH, nodes=2, env=env)["args"] == told


def test_tensorflow_is_told_of_its_peers(container: Container):
    told = container.shown(family=EngineFamily.TENSORFLOW, nodes=2, env=PEERS, options=("--x=1",))["args"]
    hosts = "127.64.0.1:10000,127.64.0.2:10002"
    assert told == ["--job_name=worker", "--task_index=1", f"--worker_hosts={hosts}", "--ps_hosts=", "--x=1"]


def test_mpi_without_mpirun_says_so(container: Container):
    done = container.run(family=EngineFamily.MPI, nodes=1, env={"MA_NUM_GPUS": "2"})
    assert done.returncode == 127
    assert (
        platform_lines(done)[-1] == "error: this engine needs mpirun for 2 ranks, and mpirun is not installed"
    )
    assert container.shown(family=EngineFamily.MPI, options=("--x=1",))["args"] == ["--x=1"]


def test_no_variable_of_the_user_is_changed(container: Container):
    """Parameters and channels are variables of a command, and `nodes`, `rank` and `size` are likely names."""
    assigned = set(re.findall(r"(?<![\w$-])([A-Za-z_]\w*)=", command(Start())[2]))
    names = {name for name in assigned if name.islower() and not name.startswith("_t_")}
    names |= {
        "code",
        "command",
        "folder",
        "lead",
        "nodes",
        "packages",
        "rank",
        "shell",
        "size",
        "status",
        "where",
    }
    user = {name: f"the user's {name}" for name in names}
    peers = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    done = container.run(command="env", env=user | peers, family=EngineFamily.PYTORCH, nodes=2)
    assert {f"{name}={value}" for name, value in user.items()} <= set(done.stdout.splitlines()), done
