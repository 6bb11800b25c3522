"""Programs run, and their ends are reported: with and without the sandbox."""

import asyncio
import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.engines.local.harness import MASTER, EngineHarness, running_processes
from turnout.engines import Refused
from turnout.job import Attempt, Cause, Ended, Mount, Policy, Program, ReplicaName, Role, Started, host_name


async def test_a_program_runs_and_its_exit_code_is_reported(harness: EngineHarness):
    end = await harness.run("sh", "-c", "echo to stdout; echo to stderr >&2; exit 3")
    assert (end.cause, end.code, end.signal) == (Cause.EXIT, 3, None)
    assert harness.output(end.attempt) == "to stdout\n"
    assert harness.output(end.attempt, stream=1) == "to stderr\n"


async def test_a_signal_is_reported(harness: EngineHarness):
    end = await harness.run("sh", "-c", "kill -USR1 $$")
    assert (end.cause, end.code, end.signal) == (Cause.EXIT, None, signal.SIGUSR1)


@pytest.mark.parametrize(
    ("program", "code"), [("no-such-program", 127), ("./no/such", 127), ("/etc/passwd", 126)]
)
async def test_an_error_names_a_program_that_cannot_be_run(harness: EngineHarness, program: str, code: int):
    end = await harness.run(program)
    assert (end.cause, end.code) == (Cause.NOT_FOUND, code)
    assert program in end.message


async def test_a_script_without_a_shebang_runs(harness: EngineHarness, base_dir: Path):
    (base_dir / "code").mkdir()
    script = base_dir / "code" / "go"
    script.write_text("echo $1\n")
    script.chmod(0o755)
    end = await harness.run("./go", "on", mounts=(Mount(f"file://{base_dir}/code", "/data/code"),))
    assert (end.code, harness.output(end.attempt)) == (0, "on\n")


async def test_python_is_the_interpreter_of_the_runtime(harness: EngineHarness):
    program = "import subprocess, sys; print(sys.executable); subprocess.run(['python', '-c', 'print(2)'])"
    for name in ("python", "python2", "python3"):
        end = await harness.run(name, "-c", program)
        executable, nested = harness.output(end.attempt).splitlines()
        assert f"({executable})" in harness.engine.runtime("any")
        assert nested == "2"


async def test_the_supervisor_has_a_higher_priority_than_jobs(harness: EngineHarness):
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    expected = -10 if os.geteuid() == 0 and ours == 0 else ours
    assert os.getpriority(os.PRIO_PROCESS, harness.engine.supervisor_pid) == expected
    program = "import os; print(os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0))"
    end = await harness.run("python", "-c", program)
    assert harness.output(end.attempt) == f"{ours} {os.SCHED_OTHER}\n"


async def test_every_replica_knows_all_the_others(harness: EngineHarness):
    command = Program(("sh", "-c", "env"))
    roles = (
        Role("master", command, leads=True, task_type="chief"),
        Role("ps", command),
        Role("worker", command, replicas=2),
    )
    attempt = await harness.start(roles=roles)
    names = [
        ReplicaName("master", 0),
        ReplicaName("ps", 0),
        ReplicaName("worker", 0),
        ReplicaName("worker", 1),
    ]
    environments = []
    for name in names:
        assert (await harness.ended(attempt, name)).code == 0
        environments.append(dict(line.split("=", 1) for line in harness.output(attempt, name).splitlines()))
    assert [env["RANK"] for env in environments] == ["0", "1", "2", "3"]
    assert {env["WORLD_SIZE"] for env in environments} == {"4"}
    clusters = [json.loads(env["TF_CONFIG"])["cluster"] for env in environments]
    assert all(cluster == clusters[0] for cluster in clusters)
    assert {task: len(where) for task, where in clusters[0].items()} == {"chief": 1, "ps": 1, "worker": 2}
    addresses = [where.split(":")[0] for task in clusters[0].values() for where in task]
    assert len(set(addresses)) == 4
    assert addresses[0] == (await harness.started(attempt)).address == environments[3]["MASTER_ADDR"]


async def test_peers_have_host_names_in_the_sandbox(sandboxed: EngineHarness):
    peer = ReplicaName("worker", 0)
    command = Program(("sh", "-c", "hostname; grep my-job /etc/hosts; getent hosts $(hostname)"))
    attempt = await sandboxed.start(roles=(Role("master", command, leads=True), Role("worker", command)))
    await sandboxed.ended(attempt, peer)
    names = [host_name(attempt.job, "my-job", replica) for replica in (MASTER, peer)]
    addresses = [(await sandboxed.started(attempt, replica)).address for replica in (MASTER, peer)]
    own, *hosts, resolved = sandboxed.output(attempt, peer).splitlines()
    assert own == names[1]
    assert hosts == [f"{address} {name}" for address, name in zip(addresses, names, strict=True)]
    assert resolved.split() == [addresses[1], names[1]]


async def test_stop_sends_a_term_that_a_program_can_handle(harness: EngineHarness):
    attempt = await harness.start(
        "sh", "-c", "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.01; done"
    )
    await harness.wait_for_output(attempt, "ready")
    await harness.engine.stop(attempt, 20)
    end = await harness.ended(attempt)
    assert (end.cause, end.code) == (Cause.STOPPED, 7)
    assert harness.output(attempt) == "ready\nbye\n"


async def test_a_program_that_ignores_term_is_killed(harness: EngineHarness):
    attempt = await harness.start("sh", "-c", "trap '' TERM; echo ready; sleep 1000.25 & wait; sleep 1000.25")
    await harness.wait_for_output(attempt, "ready")
    await harness.engine.stop(attempt, 0.2)
    end = await harness.ended(attempt)
    assert (end.cause, end.signal) == (Cause.STOPPED, signal.SIGKILL)
    assert not running_processes("1000.25")


async def test_one_replica_can_be_stopped_alone(harness: EngineHarness):
    command = Program(("sleep", "1000"))
    attempt = await harness.start(roles=(Role("master", command, leads=True), Role("ps", command)))
    await harness.started(attempt, ReplicaName("ps", 0))
    await harness.engine.stop(attempt, 5, (ReplicaName("ps", 0),))
    assert (await harness.ended(attempt, ReplicaName("ps", 0))).cause == Cause.STOPPED
    assert not [r for r in harness.reports if isinstance(r, Ended) and r.replica == MASTER]


async def test_a_stop_before_the_start_wins(harness: EngineHarness):
    launch = harness.launch("echo", "never")
    await harness.engine.stop(launch.attempt, 5)
    await harness.engine.start(launch)
    assert (await harness.ended(launch.attempt)).cause == Cause.STOPPED
    assert harness.output(launch.attempt) == ""


async def test_a_repeated_start_starts_nothing(harness: EngineHarness):
    launch = harness.launch("sh", "-c", "echo once; sleep 0.2")
    for _ in range(3):
        await harness.engine.start(launch)
    await harness.ended(launch.attempt)
    await harness.engine.start(launch)
    await harness.run("true")
    assert harness.output(launch.attempt) == "once\n"


async def test_a_time_limit_ends_the_job(harness: EngineHarness):
    end = await harness.run("sleep", "1000", policy=Policy(time_limit=0.3, grace=5))
    assert (end.cause, end.signal) == (Cause.TIME_LIMIT, signal.SIGTERM)


async def test_mounts_are_at_their_targets(harness: EngineHarness, base_dir: Path):
    for name in ("samples", "code"):
        (base_dir / name).mkdir()
        (base_dir / name).chmod(0o777)
    (base_dir / "code" / "train.py").write_text("import sys; print(open(sys.argv[1]).read())")
    (base_dir / "samples" / "x").write_text("sample")
    mounts = (
        Mount(f"file://{base_dir}/code", "/opt/ml/code"),
        Mount(f"file://{base_dir}/samples", "/opt/ml/data", read_only=True),
    )
    end = await harness.run("python", "train.py", "/opt/ml/data/x", mounts=mounts)
    assert (end.code, harness.output(end.attempt)) == (0, "sample\n"), harness.output(end.attempt, stream=1)
    end = await harness.run("sh", "-c", "cat $TURNOUT_ROOT/opt/ml/data/x; touch result", mounts=mounts)
    assert (end.code, harness.output(end.attempt)) == (0, "sample"), harness.output(end.attempt, stream=1)
    assert (base_dir / "code" / "result").exists()


async def test_a_read_only_mount_cannot_be_written(sandboxed: EngineHarness, base_dir: Path):
    (base_dir / "samples").mkdir()
    (base_dir / "samples").chmod(0o777)
    end = await sandboxed.run(
        "touch", "/data/x", mounts=(Mount(f"file://{base_dir}/samples", "/data", read_only=True),)
    )
    assert end.code == 1
    assert "Read-only file system" in sandboxed.output(end.attempt, stream=1)


@pytest.mark.parametrize("target", ["/usr/lib/x", "/etc", "/data/../etc", "data", "/proc"])
async def test_a_mount_cannot_hide_the_system(sandboxed: EngineHarness, base_dir: Path, target: str):
    with pytest.raises(Refused, match="mount target"):
        await sandboxed.start("true", mounts=(Mount(f"file://{base_dir}", target),))


async def test_the_workspace_is_removed_when_the_attempt_is_forgotten(harness: EngineHarness):
    attempt = await harness.start(
        "sh", "-c", "mkdir -p a/b; echo x > a/b/c; chmod 0 a/b; mktemp; pwd; exit 0"
    )
    assert (await harness.ended(attempt)).code == 0
    replica = harness.paths.replica(attempt, MASTER)
    assert (replica / "space" / "work" / "a").exists()
    await harness.engine.forget(attempt)
    await removed(replica / "space")
    assert harness.output(attempt).count("\n") == 2


async def test_the_workspace_can_be_kept(harness: EngineHarness):
    attempt = await harness.start("sh", "-c", "echo x > result")
    await harness.ended(attempt)
    await harness.engine.forget(attempt, keep_workspace=True)
    await harness.run("true")
    assert (harness.paths.workspace(attempt, MASTER) / "result").exists()


async def test_stored_attempts_can_be_removed(harness: EngineHarness):
    ends = [await harness.run("true") for _ in range(3)]
    first, second, third = (end.attempt for end in ends)
    assert await harness.engine.attempts_on_disk() == [first, second, third]
    await harness.engine.remove([first, third])
    while await harness.engine.attempts_on_disk() != [second]:  # noqa: ASYNC110 (a thread removes it)
        await asyncio.sleep(0.01)


MAKE_DEEP_TREE = """
import os
for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
"""


async def test_a_deep_tree_does_not_block_other_removals(harness: EngineHarness):
    deep = await harness.run("python", "-c", MAKE_DEEP_TREE)
    others = [await harness.run("echo", "x") for _ in range(2)]
    assert deep.code == 0
    gone = harness.paths.attempts / ".gone"
    for end in (deep, *others):
        await harness.engine.forget(end.attempt)
    await harness.engine.remove([deep.attempt, others[0].attempt])
    while await harness.engine.attempts_on_disk() != [others[1].attempt] or list(gone.glob("*-*.1_*")):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await harness.engine.remove([others[1].attempt])
    while await harness.engine.attempts_on_disk() or list(gone.glob("*-*.1_*")):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_a_replica_sees_only_its_own_gpus(base_dir: Path):
    async with EngineHarness(base_dir, sandbox="none", gpus=4) as harness:
        gpus = {"master-0": (1, 3)}
        command = Program(("sh", "-c", "echo [$CUDA_VISIBLE_DEVICES]"))
        roles = (Role("master", command, leads=True), Role("worker", command))
        attempt = await harness.start(roles=roles, gpus=gpus)
        await harness.ended(attempt)
        await harness.ended(attempt, ReplicaName("worker", 0))
        assert harness.output(attempt) == "[1,3]\n"
        assert harness.output(attempt, ReplicaName("worker", 0)) == "[]\n"


async def test_the_users_variables_take_precedence(harness: EngineHarness):
    end = await harness.run("sh", "-c", "echo $RANK $LANG", env={"RANK": "7", "LANG": "C"})
    assert harness.output(end.attempt) == "7 C\n"


async def test_a_program_can_have_ten_thousand_arguments(harness: EngineHarness):
    end = await harness.run("sh", "-c", "echo $#", "sh", *(["x"] * 10_000))
    assert harness.output(end.attempt) == "10000\n", end


async def test_an_idle_supervisor_without_a_service_ends(harness: EngineHarness):
    await harness.run("true")
    pidfd = os.pidfd_open(harness.supervisor)
    await harness.disconnect()
    gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(pidfd, gone.set)
    await asyncio.wait_for(gone.wait(), 10)
    asyncio.get_running_loop().remove_reader(pidfd)
    os.close(pidfd)
    await harness.reconnect()
    assert [r for r in harness.reports if isinstance(r, Ended)]


async def test_a_long_data_directory_works(base_dir: Path):
    deep = base_dir / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    async with EngineHarness(deep, sandbox="none") as harness:
        assert (await harness.run("true")).code == 0


async def test_many_jobs_run_at_once(harness: EngineHarness):
    attempts = [await harness.start("sh", "-c", f"echo {number}; exit {number}") for number in range(40)]
    for number, attempt in enumerate(attempts):
        assert (await harness.ended(attempt)).code == number
        assert harness.output(attempt) == f"{number}\n"
        await harness.engine.forget(attempt)
    pids = {report.pid for report in harness.reports if isinstance(report, Started)}
    assert len(pids) == 40


async def removed(path: Path) -> None:
    """Another process removes big trees."""
    async with asyncio.timeout(10):
        while path.exists():  # noqa: ASYNC110 there is no event for it
            await asyncio.sleep(0.01)


def test_the_text_of_an_attempt_can_be_parsed():
    assert Attempt.parse(str(Attempt(5, 2))) == Attempt(5, 2)


@pytest.mark.parametrize("code", [0, 7])
async def test_a_removed_directory_does_not_change_the_exit_code(
    harness: EngineHarness, base_dir: Path, code: int
):
    (base_dir / "go").mkdir()
    (base_dir / "go").chmod(0o777)
    script = f"echo on; while [ ! -e now ]; do sleep 0.02; done; exit {code}"
    attempt = await harness.start("sh", "-c", script, mounts=(Mount(f"file://{base_dir / 'go'}", "/data"),))
    await harness.wait_for_output(attempt, "on")
    while (directory := harness.paths.replica(attempt, MASTER)).exists():
        shutil.rmtree(directory, ignore_errors=True)  # the supervisor may be adding its first mark
    (base_dir / "go" / "now").touch()
    end = await harness.ended(attempt)
    assert (end.cause, end.code) == (Cause.EXIT, code)
    await harness.engine.forget(attempt)
    assert (await harness.run("true")).code == 0
