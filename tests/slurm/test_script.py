"""The options of sbatch, and the batch script run by a real shell with stand-ins for Slurm's commands."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.slurm.harness import TOKEN, role
from turnout.engines.remote import Gang, RunnerCall
from turnout.engines.slurm.layout import layouts
from turnout.engines.slurm.script import minutes, sbatch, script, start_program
from turnout.engines.slurm.settings import SlurmSettings
from turnout.job import Attempt, Launch, Mount, Policy, Role, Spec

SETTINGS = SlurmSettings(environment={})
RUNNER = RunnerCall("http://10.0.0.1:8470", "gpu", TOKEN, "", "/data/runner.pyz", "abc123")


def gang(*roles: Role, policy: Policy | None = None) -> Gang:
    spec = Spec(roles, policy=policy or Policy())
    return Gang("turnout-17.1", Launch(Attempt(17, 1), "project", "native", "job", spec), RUNNER)


def options(settings: SlurmSettings, *roles: Role, policy: Policy | None = None) -> list[str]:
    one = gang(*roles, policy=policy)
    return sbatch(one, settings, layouts(roles)[0], None)


def test_the_options_of_sbatch():
    found = options(SETTINGS, role("worker", 2, cpus=2, memory=100, gpus=1), policy=Policy(time_limit=3600))
    assert found == [
        "sbatch", "--parsable", "--job-name=turnout-17.1", "--no-requeue", "--export=ALL", "--chdir=/",
        "--output=/dev/null", "--error=/dev/null", "--signal=B:TERM@60", "--time=67",
        "--ntasks=2", "--cpus-per-task=2", "--mem-per-cpu=50M", "--gpus-per-task=1",
    ]  # fmt: skip


def test_options_of_the_settings_come_last():
    settings = SETTINGS._replace(
        partition="gpu", account="lab", qos="high", constraint="a100|h100", options=("--nice=10", "--time=5")
    )
    assert options(settings, role("worker"))[-6:] == [
        "--partition=gpu", "--account=lab", "--qos=high", "--constraint=a100|h100", "--nice=10", "--time=5",
    ]  # fmt: skip


def test_no_memory_means_the_default_of_the_partition():
    assert not any(option.startswith("--mem") for option in options(SETTINGS, role("worker", memory=0)))


@pytest.mark.parametrize(
    ("limit", "longest", "expected"),
    [
        (None, None, 1440),
        (None, 600.0, 600),
        (None, 9000.0, 1440),
        (1.0, None, 7),
        (3600.0, None, 67),
        (3600.0, 65.0, 65),
        (3600.0, 30.0, 60),
    ],
)
def test_the_time_limit(limit: float | None, longest: float | None, expected: int):
    spec = Spec((role("worker"),), policy=Policy(time_limit=limit))
    assert minutes(spec, 1440, longest) == expected


def test_staging_has_time_of_its_own():
    spec = Spec((role("worker"),), (Mount("obs://b/x", "/x"),), policy=Policy(time_limit=60))
    assert minutes(spec, 1440, None) == 38


def test_the_token_is_in_the_text_alone():
    one = gang(role("worker"))
    layout = layouts(one.launch.spec.roles)[0]
    assert TOKEN not in " ".join(sbatch(one, SETTINGS, layout, None))
    text = script(one, SETTINGS, layout, "", "")
    assert text.count(TOKEN) == 1
    assert f"export TURNOUT_TOKEN={TOKEN}\n" in text


def test_the_fingerprint_is_exported_if_there_is_one():
    one = gang(role("worker"))
    layout = layouts(one.launch.spec.roles)[0]
    assert "TURNOUT_FINGERPRINT" not in script(one, SETTINGS, layout, "", "").replace(start_program(), "")
    pinned = one._replace(runner=RUNNER._replace(fingerprint="ab12"))
    assert "export TURNOUT_FINGERPRINT=ab12\n" in script(pinned, SETTINGS, layout, "", "")


# Records its arguments and the hosts of its tasks, then does what the test says. The role is its third-last argument.
SRUN = """#!/bin/sh
eval "role=\\${$(($# - 2))}"
(unset TURNOUT_SLURM_JOB && env | grep ^SLURM) >"$RECORDS/$role.env"
[ -z "$SLURM_HOSTFILE" ] || cp "$SLURM_HOSTFILE" "$RECORDS/$role.hosts"
echo "$*" >"$RECORDS/$role.arguments"
. "$RECORDS/program"
"""
SCONTROL = """#!/bin/sh
case $1 in
    show) printf '%s\\n' n1 n2 n3 ;;
    update) echo "$3" >"$RECORDS/comment" ;;
esac
"""
SCANCEL = """#!/bin/sh
echo "$*" >>"$RECORDS/cancelled"
touch "$RECORDS/stop"
"""


class Batch:
    """A batch script as Slurm would run it."""

    def __init__(self, directory: Path, shell: str, *roles: Role, words: str = "", tasks: str = "9") -> None:
        self.directory = directory
        self.shell = shell
        for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("scancel", SCANCEL)):
            (directory / name).write_text(text)
            (directory / name).chmod(0o755)
        one = gang(*roles)
        (directory / "script").write_text(script(one, SETTINGS, layouts(roles)[0], words, ""))
        self.environment = {
            "PATH": f"{directory}:/usr/bin:/bin", "TMPDIR": str(directory), "RECORDS": str(directory),
            "SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "turnout-17.1", "SLURM_JOB_NODELIST": "n[1-3]",
            "SLURM_TASKS_PER_NODE": tasks, "SLURM_NTASKS": "5", "SLURM_GPUS_PER_TASK": "1", "SLURM_CONF": "/c",
        }  # fmt: skip

    def start(self, program: str) -> subprocess.Popen[bytes]:
        """`program`: what srun does. `$role` is the role's name."""
        (self.directory / "program").write_text(program)
        return subprocess.Popen(
            [self.shell, str(self.directory / "script")], env=self.environment, start_new_session=True
        )

    def run(self, program: str) -> int:
        return ended(self.start(program))

    def recorded(self, name: str) -> str:
        path = self.directory / name
        return path.read_text() if path.exists() else ""


def ended(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(20)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(params=["dash", "bash"])
def shell(request: pytest.FixtureRequest) -> str:
    return request.param


ROLES = (role("chief", cpus=1), role("worker", 2, cpus=2, leads=False))


def test_the_exit_code_is_that_of_the_lead(tmp_path: Path, shell: str):
    batch = Batch(tmp_path, shell, *ROLES)
    assert batch.run('[ "$role" != chief ] || { sleep 0.3; exit 3; }; exit 9') == 3
    assert "--ntasks=2 --cpus-per-task=2 --mem-per-cpu=32M --gres=none" in batch.recorded("worker.arguments")
    assert not list(tmp_path.glob("turnout-*"))


def test_srun_gets_none_of_the_variables_that_are_options_to_it(tmp_path: Path, shell: str):
    batch = Batch(tmp_path, shell, *ROLES)
    assert batch.run("env | grep TURNOUT_SLURM_JOB -A9 >$RECORDS/kept; exit 0") == 0
    names = {line.partition("=")[0] for line in batch.recorded("chief.env").splitlines()}
    assert names == {"SLURM_JOB_ID", "SLURM_CONF", "SLURM_HOSTFILE"}
    assert "SLURM_JOB_NAME=turnout-17.1" in batch.recorded("kept")
    assert "SLURM_NTASKS" not in batch.recorded("kept")
    assert batch.recorded("comment") == ""


@pytest.mark.parametrize(
    ("tasks", "workers"), [("3", "n1 n1"), ("1(x3)", "n1 n2"), ("2,1", "n1 n1"), ("1,2", "n1 n2")]
)
def test_replicas_go_to_the_nodes_of_their_slots(tmp_path: Path, tasks: str, workers: str):
    roles = (role("worker", 2, leads=False), role("chief"))
    batch = Batch(tmp_path, "dash", *roles, tasks=tasks)
    assert batch.run("exit 0") == 0
    assert batch.recorded("worker.hosts").split() == workers.split()


def test_fewer_slots_than_asked_for(tmp_path: Path, shell: str):
    batch = Batch(tmp_path, shell, role("chief"), role("worker", 2, leads=False), tasks="1")
    assert batch.run("exit 0") == 0
    assert batch.recorded("worker.hosts") == ""
    assert "arbitrary" not in batch.recorded("worker.arguments")


def test_a_single_role_needs_no_list_of_hosts(tmp_path: Path):
    batch = Batch(tmp_path, "dash", role("worker", 3))
    assert batch.run("exit 0") == 0
    assert batch.recorded("worker.hosts") == ""


def test_a_signal_is_passed_to_the_steps_and_the_script_waits_for_them(tmp_path: Path, shell: str):
    batch = Batch(tmp_path, shell, *ROLES)
    process = batch.start(
        "touch $RECORDS/$role.runs; until [ -e $RECORDS/stop ]; do sleep 0.05; done; sleep 0.5; exit 4"
    )
    end = time.monotonic() + 20
    while (
        not all((tmp_path / f"{name}.runs").exists() for name in ("chief", "worker"))
        and time.monotonic() < end
    ):
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGTERM)
    assert ended(process) == 4
    assert batch.recorded("cancelled") == "--signal=TERM 7\n"


def test_what_the_steps_printed_becomes_the_comment_if_one_failed(tmp_path: Path, shell: str):
    batch = Batch(tmp_path, shell, *ROLES)
    program = "[ $role = worker ] && { echo ' 0: fine'; printf '1: a\\tb\\n'; echo 'srun: error: x'; exit 1; }; exit 0"
    assert batch.run(program) == 0
    assert (
        batch.recorded("comment")
        == "comment=turnout: worker-0: fine | worker-1: a?b | worker: srun: error: x | \n"
    )


def test_memory_is_named_first(tmp_path: Path):
    batch = Batch(tmp_path, "dash", *ROLES)
    said = "0: slurmstepd: error: Detected 1 oom_kill event in StepId=7.1."
    assert batch.run(f"[ $role = worker ] && {{ echo '{said}'; exit 1; }}; exit 0") == 0
    assert batch.recorded("comment").startswith(
        "comment=turnout: out of memory: worker | worker-0: slurmstepd"
    )


def test_a_comment_is_not_longer_than_slurm_allows(tmp_path: Path):
    batch = Batch(tmp_path, "dash", *ROLES)
    batch.run("i=0; while [ $i -lt 100 ]; do echo '0: many words and more of them'; i=$((i+1)); done; exit 1")
    assert 900 <= len(batch.recorded("comment")) < 1000


def test_a_step_that_cannot_start_ends_the_others(tmp_path: Path, shell: str):
    batch = Batch(tmp_path, shell, *ROLES)
    wait = "until [ -e $RECORDS/stop ]; do sleep 0.05; done; exit 7"
    error = "srun: error: Unable to create step for job 7: More processors requested than permitted"
    assert batch.run(f"[ $role = worker ] && {{ echo '{error}'; exit 1; }}; {wait}") == 7
    assert batch.recorded("cancelled") == "--signal=TERM 7\n"


def test_a_shared_directory_that_cannot_be_written_keeps_nothing_from_running(tmp_path: Path, shell: str):
    batch = Batch(tmp_path, shell, *ROLES, words=f"{tmp_path}/nowhere/words-")
    assert batch.run("echo '0: hello'; exit 3") == 3
    assert "chief-0: hello | " in batch.recorded("comment")


def test_a_replica_that_ends_before_the_others_is_named_at_once(tmp_path: Path, shell: str):
    batch = Batch(tmp_path, shell, *ROLES)
    error = "srun: error: n1: task 1: Killed"
    program = f"[ $role = worker ] && echo '{error}' >&2; until [ -e $RECORDS/comment ]; do sleep 0.05; done; exit 6"
    assert batch.run(f"{program.replace('exit 6', 'cat $RECORDS/comment >$RECORDS/first; exit 6')}") == 6
    assert batch.recorded("first") == f"comment=turnout: worker: {error} | \n"


def test_words_stay_in_a_shared_directory(tmp_path: Path):
    batch = Batch(tmp_path, "dash", *ROLES, words=f"{tmp_path}/words-")
    assert batch.run("[ $role = worker ] && { echo '0: hello'; exit 1; }; exit 0") == 0
    assert batch.recorded("words-7-worker") == "0: hello\n"
    assert not (tmp_path / "words-7-chief").exists()
