"""Programs run, and what becomes of them is told: with the sandbox and without."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from tests.engines.local.yard import MASTER, Yard, alive
from turnout.engines import Refused
from turnout.job import Attempt, Cause, Ended, Mount, Policy, Program, ReplicaName, Role, Started, host_name


async def test_a_program_runs_and_its_exit_code_is_kept(yard: Yard):
    end = await yard.run("sh", "-c", "echo to stdout; echo to stderr >&2; exit 3")
    assert (end.cause, end.code, end.signal) == (Cause.EXIT, 3, None)
    assert yard.out(end.attempt) == "to stdout\n"
    assert yard.out(end.attempt, stream=1) == "to stderr\n"


async def test_a_signal_is_kept(yard: Yard):
    end = await yard.run("sh", "-c", "kill -USR1 $$")
    assert (end.cause, end.code, end.signal) == (Cause.EXIT, None, signal.SIGUSR1)


@pytest.mark.parametrize(
    ("program", "code"), [("no-such-program", 127), ("./no/such", 127), ("/etc/passwd", 126)]
)
async def test_a_program_that_cannot_be_run_is_named(yard: Yard, program: str, code: int):
    end = await yard.run(program)
    assert (end.cause, end.code) == (Cause.NOT_FOUND, code)
    assert program in end.message


async def test_a_script_without_a_first_line_runs_as_a_shell_would_run_it(yard: Yard, place: Path):
    (place / "code").mkdir()
    script = place / "code" / "go"
    script.write_text("echo $1\n")
    script.chmod(0o755)
    end = await yard.run("./go", "on", mounts=(Mount(f"file://{place}/code", "/data/code"),))
    assert (end.code, yard.out(end.attempt)) == (0, "on\n")


async def test_python_means_the_interpreter_of_the_runtime(yard: Yard):
    program = "import subprocess, sys; print(sys.executable); subprocess.run(['python', '-c', 'print(2)'])"
    for name in ("python", "python2", "python3"):
        end = await yard.run(name, "-c", program)
        executable, nested = yard.out(end.attempt).splitlines()
        assert f"({executable})" in yard.engine.runtime("any")
        assert nested == "2"


async def test_the_keeper_goes_before_the_jobs_and_only_the_keeper(yard: Yard):
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    expected = -10 if os.geteuid() == 0 and ours == 0 else ours
    assert os.getpriority(os.PRIO_PROCESS, yard.engine.keeper) == expected
    program = "import os; print(os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0))"
    end = await yard.run("python", "-c", program)
    assert yard.out(end.attempt) == f"{ours} {os.SCHED_OTHER}\n"


async def test_every_replica_is_told_of_all(yard: Yard):
    command = Program(("sh", "-c", "env"))
    roles = (
        Role("master", command, leads=True, task_type="chief"),
        Role("ps", command),
        Role("worker", command, replicas=2),
    )
    attempt = await yard.start(roles=roles)
    names = [
        ReplicaName("master", 0),
        ReplicaName("ps", 0),
        ReplicaName("worker", 0),
        ReplicaName("worker", 1),
    ]
    told = []
    for name in names:
        assert (await yard.ended(attempt, name)).code == 0
        told.append(dict(line.split("=", 1) for line in yard.out(attempt, name).splitlines()))
    assert [env["RANK"] for env in told] == ["0", "1", "2", "3"]
    assert {env["WORLD_SIZE"] for env in told} == {"4"}
    clusters = [json.loads(env["TF_CONFIG"])["cluster"] for env in told]
    assert all(cluster == clusters[0] for cluster in clusters)
    assert {task: len(where) for task, where in clusters[0].items()} == {"chief": 1, "ps": 1, "worker": 2}
    addresses = [where.split(":")[0] for task in clusters[0].values() for where in task]
    assert len(set(addresses)) == 4
    assert addresses[0] == (await yard.started(attempt)).address == told[3]["MASTER_ADDR"]


async def test_the_sandbox_knows_its_peers_by_name(boxed_yard: Yard):
    peer = ReplicaName("worker", 0)
    command = Program(("sh", "-c", "hostname; grep my-job /etc/hosts; getent hosts $(hostname)"))
    attempt = await boxed_yard.start(roles=(Role("master", command, leads=True), Role("worker", command)))
    await boxed_yard.ended(attempt, peer)
    names = [host_name(attempt.job, "my-job", replica) for replica in (MASTER, peer)]
    addresses = [(await boxed_yard.started(attempt, replica)).address for replica in (MASTER, peer)]
    own, *hosts, resolved = boxed_yard.out(attempt, peer).splitlines()
    assert own == names[1]
    assert hosts == [f"{address} {name}" for address, name in zip(addresses, names, strict=True)]
    assert resolved.split() == [addresses[1], names[1]]


async def test_stop_is_a_term_that_a_program_can_act_on(yard: Yard):
    attempt = await yard.start(
        "sh", "-c", "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.01; done"
    )
    await yard.printed(attempt, "ready")
    await yard.engine.stop(attempt, 20)
    end = await yard.ended(attempt)
    assert (end.cause, end.code) == (Cause.STOPPED, 7)
    assert yard.out(attempt) == "ready\nbye\n"


async def test_who_does_not_hear_a_term_is_killed(yard: Yard):
    attempt = await yard.start("sh", "-c", "trap '' TERM; echo ready; sleep 1000.25 & wait; sleep 1000.25")
    await yard.printed(attempt, "ready")
    await yard.engine.stop(attempt, 0.2)
    end = await yard.ended(attempt)
    assert (end.cause, end.signal) == (Cause.STOPPED, signal.SIGKILL)
    assert not alive("1000.25")


async def test_one_replica_can_be_stopped_alone(yard: Yard):
    command = Program(("sleep", "1000"))
    attempt = await yard.start(roles=(Role("master", command, leads=True), Role("ps", command)))
    await yard.started(attempt, ReplicaName("ps", 0))
    await yard.engine.stop(attempt, 5, (ReplicaName("ps", 0),))
    assert (await yard.ended(attempt, ReplicaName("ps", 0))).cause == Cause.STOPPED
    assert not [r for r in yard.reports if isinstance(r, Ended) and r.replica == MASTER]


async def test_a_stop_that_comes_before_the_start_wins(yard: Yard):
    launch = yard.launch("echo", "never")
    await yard.engine.stop(launch.attempt, 5)
    await yard.engine.start(launch)
    assert (await yard.ended(launch.attempt)).cause == Cause.STOPPED
    assert yard.out(launch.attempt) == ""


async def test_a_start_that_is_repeated_starts_nothing(yard: Yard):
    launch = yard.launch("sh", "-c", "echo once; sleep 0.2")
    for _ in range(3):
        await yard.engine.start(launch)
    await yard.ended(launch.attempt)
    await yard.engine.start(launch)
    await yard.run("true")
    assert yard.out(launch.attempt) == "once\n"


async def test_a_time_limit_ends_it(yard: Yard):
    end = await yard.run("sleep", "1000", policy=Policy(time_limit=0.3, grace=5))
    assert (end.cause, end.signal) == (Cause.TIME_LIMIT, signal.SIGTERM)


async def test_mounts_are_found_at_their_targets(yard: Yard, place: Path):
    for name in ("samples", "code"):
        (place / name).mkdir()
        (place / name).chmod(0o777)
    (place / "code" / "train.py").write_text("import sys; print(open(sys.argv[1]).read())")
    (place / "samples" / "x").write_text("sample")
    mounts = (
        Mount(f"file://{place}/code", "/opt/ml/code"),
        Mount(f"file://{place}/samples", "/opt/ml/data", read_only=True),
    )
    end = await yard.run("python", "train.py", "/opt/ml/data/x", mounts=mounts)
    assert (end.code, yard.out(end.attempt)) == (0, "sample\n"), yard.out(end.attempt, stream=1)
    end = await yard.run("sh", "-c", "cat $TURNOUT_ROOT/opt/ml/data/x; touch result", mounts=mounts)
    assert (end.code, yard.out(end.attempt)) == (0, "sample"), yard.out(end.attempt, stream=1)
    assert (place / "code" / "result").exists()


async def test_a_read_only_mount_cannot_be_written(boxed_yard: Yard, place: Path):
    (place / "samples").mkdir()
    (place / "samples").chmod(0o777)
    end = await boxed_yard.run(
        "touch", "/data/x", mounts=(Mount(f"file://{place}/samples", "/data", read_only=True),)
    )
    assert end.code == 1
    assert "Read-only file system" in boxed_yard.out(end.attempt, stream=1)


@pytest.mark.parametrize("target", ["/usr/lib/x", "/etc", "/data/../etc", "data", "/proc"])
async def test_a_mount_cannot_hide_the_system(boxed_yard: Yard, place: Path, target: str):
    with pytest.raises(Refused, match="mount target"):
        await boxed_yard.start("true", mounts=(Mount(f"file://{place}", target),))


async def test_the_working_directory_is_private_and_goes(yard: Yard):
    attempt = await yard.start("sh", "-c", "mkdir -p a/b; echo x > a/b/c; chmod 0 a/b; mktemp; pwd; exit 0")
    assert (await yard.ended(attempt)).code == 0
    replica = yard.paths.replica(attempt, MASTER)
    assert (replica / "work" / "a").exists()
    await yard.engine.forget(attempt)
    await removed(replica / "work")
    await removed(replica / "tmp")
    assert yard.out(attempt).count("\n") == 2


async def test_the_workspace_can_be_kept(yard: Yard):
    attempt = await yard.start("sh", "-c", "echo x > result")
    await yard.ended(attempt)
    await yard.engine.forget(attempt, keep_workspace=True)
    await yard.run("true")
    assert (yard.paths.replica(attempt, MASTER) / "work" / "result").exists()


async def test_what_is_stored_can_be_removed(yard: Yard):
    ends = [await yard.run("true") for _ in range(3)]
    first, second, third = (end.attempt for end in ends)
    assert await yard.engine.stored() == [first, second, third]
    await yard.engine.remove([first, third])
    while await yard.engine.stored() != [second]:  # noqa: ASYNC110 (a thread removes it)
        await asyncio.sleep(0.01)


async def test_gpus_are_told_and_none_means_none(place: Path):
    async with Yard(place, sandbox="none", gpus=4) as yard:
        gpus = {"master-0": (1, 3)}
        command = Program(("sh", "-c", "echo [$CUDA_VISIBLE_DEVICES]"))
        roles = (Role("master", command, leads=True), Role("worker", command))
        attempt = await yard.start(roles=roles, gpus=gpus)
        await yard.ended(attempt)
        await yard.ended(attempt, ReplicaName("worker", 0))
        assert yard.out(attempt) == "[1,3]\n"
        assert yard.out(attempt, ReplicaName("worker", 0)) == "[]\n"


async def test_the_users_variables_win(yard: Yard):
    end = await yard.run("sh", "-c", "echo $RANK $LANG", env={"RANK": "7", "LANG": "C"})
    assert yard.out(end.attempt) == "7 C\n"


async def test_ten_thousand_arguments(yard: Yard):
    end = await yard.run("sh", "-c", "echo $#", "sh", *(["x"] * 10_000))
    assert yard.out(end.attempt) == "10000\n", end


async def test_the_keeper_ends_when_it_is_idle_and_alone(yard: Yard):
    await yard.run("true")
    pidfd = os.pidfd_open(yard.keeper)
    await yard.leave()
    gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(pidfd, gone.set)
    await asyncio.wait_for(gone.wait(), 10)
    asyncio.get_running_loop().remove_reader(pidfd)
    os.close(pidfd)
    await yard.come_back()
    assert [r for r in yard.reports if isinstance(r, Ended)]


async def test_a_long_data_directory_works(place: Path):
    deep = place / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    async with Yard(deep, sandbox="none") as yard:
        assert (await yard.run("true")).code == 0


async def test_many_at_once(yard: Yard):
    attempts = [await yard.start("sh", "-c", f"echo {number}; exit {number}") for number in range(40)]
    for number, attempt in enumerate(attempts):
        assert (await yard.ended(attempt)).code == number
        assert yard.out(attempt) == f"{number}\n"
        await yard.engine.forget(attempt)
    pids = {report.pid for report in yard.reports if isinstance(report, Started)}
    assert len(pids) == 40


async def removed(path: Path) -> None:
    """The keeper leaves big trees to another process."""
    async with asyncio.timeout(10):
        while path.exists():  # noqa: ASYNC110 nobody tells of it
            await asyncio.sleep(0.01)


def test_an_attempt_is_named_by_its_text():
    assert Attempt.parse(str(Attempt(5, 2))) == Attempt(5, 2)
