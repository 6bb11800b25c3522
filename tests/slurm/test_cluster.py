"""The cluster against a real Slurm of four nodes, with a stand-in for the runner."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.slurm.daemons import CPUS, GPUS, Slurm
from tests.slurm.harness import TOKEN, Bench, bench, eventually, role
from turnout.engines import Refused, Unreachable
from turnout.engines.remote import ClusterJob, EndKind, Phase
from turnout.engines.slurm import SlurmCluster
from turnout.job import Policy, Program, ReplicaName, Resources, Role

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

WAIT = "import time\ntime.sleep(600)"
MEMORY = "x = bytearray(600 << 20)"
NOTE_TERM = """
import signal, sys, time
def term(*_):
    open(f"{directory}/{name}.term", "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, term)
time.sleep(600)
"""
# As ssh does: its last arguments are joined and run by a shell.
SSH = ("sh", "-c", 'exec sh -c "$*"', "ssh")


@pytest.fixture
def lab(slurm: Slurm) -> Iterator[Bench]:
    with bench(slurm) as one:
        yield one


async def first_list(cluster: SlurmCluster) -> list[ClusterJob]:
    async with aclosing(cluster.watch()) as lists:
        return await anext(lists)


async def listed(one: Bench, handle: str, wanted: str) -> ClusterJob:
    """As `watch` says once its reason has this text."""
    async with asyncio.timeout(60), aclosing(one.cluster.watch()) as lists:
        async for jobs in lists:
            found = next((job for job in jobs if job.handle == handle), None)
            if found and wanted in found.why:
                return found
    raise AssertionError


async def test_a_gang_runs_and_ends(lab: Bench):
    gang = lab.gang(role("worker", 2))
    handle = await lab.cluster.submit(gang)
    started = await lab.all_started("worker-0", "worker-1")
    attempt = gang.launch.attempt
    assert started["worker-1"].argv[1:] == [lab.endpoint, f"lab/{attempt}/worker-1"]
    assert started["worker-0"].env["TURNOUT_TOKEN"] == TOKEN
    ended = await lab.ended(handle)
    assert (ended.phase, ended.end, ended.name) == (Phase.ENDED, EndKind.EXITED, gang.name)
    assert [job.end for job in await first_list(lab.cluster) if job.handle == handle] == [EndKind.EXITED]


async def test_programs_find_the_variables_of_the_job_but_not_those_of_the_step(lab: Bench):
    gang = lab.gang(role("worker", 2, gpus=1))
    handle = await lab.cluster.submit(gang)
    environment = (await lab.all_started("worker-1"))["worker-1"].env
    names = {name for name in environment if name.startswith("SLURM_")}
    assert environment["SLURM_JOB_ID"] == environment["SLURM_JOBID"] == handle
    assert environment["SLURM_JOB_NAME"] == gang.name
    assert environment["SLURM_JOB_NODELIST"]
    strangers = {name for name in names if not name.startswith("SLURM_JOB")}
    assert strangers == {"SLURM_CONF", "SLURM_CLUSTER_NAME"}
    assert "SLURM_JOB_GPUS" not in names
    assert not {"HOSTNAME", "TURNOUT_SLURM_JOB"} & set(environment)


async def test_the_token_is_in_no_command_line_and_in_nothing_that_slurm_shows(lab: Bench):
    lab.program(WAIT)
    handle = await lab.cluster.submit(lab.gang())
    await lab.all_started("worker-0")
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert TOKEN.encode() not in path.read_bytes()
        except OSError:
            continue
    assert TOKEN not in lab.slurm.run("scontrol", "show", "job", "--details", handle)
    assert TOKEN not in lab.slurm.run("squeue", "--Format=ALL")


async def test_three_roles_of_different_sizes_run_at_the_same_time_on_four_nodes(lab: Bench):
    lab.program(WAIT)
    gang = lab.gang(
        role("chief", 1, cpus=1, memory=300),
        role("worker", 3, cpus=3, memory=500, leads=False),
        role("ps", 3, cpus=1, memory=100, leads=False),
    )
    await lab.cluster.submit(gang)
    await lab.all_started("chief-0", *(f"worker-{i}" for i in range(3)), *(f"ps-{i}" for i in range(3)))


async def test_three_roles_of_different_sizes_run_at_the_same_time_on_one_node(lab: Bench):
    one = lab.with_settings(partition="one")
    one.program(WAIT)
    gang = one.gang(
        role("chief", cpus=1, memory=100),
        role("worker", cpus=2, memory=300, leads=False),
        role("ps", cpus=0.5, memory=50, leads=False),
    )
    await one.cluster.submit(gang)
    started = await one.all_started("chief-0", "worker-0", "ps-0")
    assert {start.env["SLURMD_NODENAME"] for start in started.values()} == {lab.slurm.nodes[0]}


async def test_roles_without_limits_run_at_the_same_time(lab: Bench):
    lab.program(WAIT)
    program = Program(("true",))
    roles = (Role("chief", program, leads=True), Role("ps", program, 2, Resources.of(2)))
    await lab.cluster.submit(lab.gang(*roles))
    await lab.all_started("chief-0", "ps-0", "ps-1")


async def test_a_gang_of_many_replicas_fills_the_nodes(lab: Bench):
    lab.program(WAIT)
    await lab.cluster.submit(lab.gang(role("worker", 4 * CPUS)))
    started = await lab.all_started(*(f"worker-{index}" for index in range(4 * CPUS)))
    nodes = [start.env["SLURMD_NODENAME"] for start in started.values()]
    assert {nodes.count(node) for node in lab.slurm.nodes} == {CPUS}


async def test_every_replica_has_gpus_of_its_own(lab: Bench):
    lab.program(WAIT)
    gang = lab.gang(
        role("worker", 2, gpus=1), role("big", 1, cpus=2, gpus=2, leads=False), role("ps", leads=False)
    )
    await lab.cluster.submit(gang)
    started = await lab.all_started("worker-0", "worker-1", "big-0", "ps-0")
    assert "CUDA_VISIBLE_DEVICES" not in started["ps-0"].env
    taken = [
        (start.env["SLURMD_NODENAME"], gpu)
        for name, start in started.items()
        if name != "ps-0"
        for gpu in start.env["CUDA_VISIBLE_DEVICES"].split(",")
    ]
    assert len(taken) == len(set(taken)) == 2 * GPUS


async def test_a_node_has_an_address_of_its_own(lab: Bench):
    far = lab.with_settings(partition="far")
    await far.cluster.submit(far.gang())
    assert (await far.all_started("worker-0"))["worker-0"].addresses == [lab.slurm.far]


async def test_nodes_find_the_runner_in_a_shared_directory(lab: Bench):
    shared = lab.with_settings(runner_directory=str(lab.directory / "runners"))
    handle = await shared.cluster.submit(shared.gang(role("worker", 2)))
    started = await shared.all_started("worker-0", "worker-1")
    assert started["worker-0"].argv[0] == str(lab.directory / "runners" / f"runner-{lab.digest}.pyz")
    assert not (lab.directory / "requests").exists()
    await shared.ended(handle)


async def test_nodes_fetch_the_runner_if_the_shared_directory_does_not_have_it(lab: Bench):
    (lab.directory / "runners").write_text("not a directory")
    shared = lab.with_settings(runner_directory=str(lab.directory / "runners"))
    await shared.cluster.submit(shared.gang())
    await shared.all_started("worker-0")


# One job for each gang, whatever happens to an answer.


async def test_a_gang_that_is_there_is_not_submitted_again(lab: Bench):
    gang = lab.gang()
    handle = await lab.cluster.submit(gang)
    assert await lab.cluster.submit(gang) == handle
    await lab.ended(handle)
    assert await lab.cluster.submit(gang) == handle
    after_a_restart = lab.with_settings()
    assert await after_a_restart.cluster.submit(gang) == handle
    again = lab.with_settings()
    assert handle in [job.handle for job in await first_list(again.cluster)]
    assert await again.cluster.submit(gang) == handle


async def test_a_lost_answer_does_not_lose_the_job(lab: Bench):
    lose = 'case "$1" in sbatch*) sh -c "$1" >/dev/null; echo Connection closed >&2; exit 255;; esac; exec sh -c "$1"'
    losing = lab.with_settings(command=("sh", "-c", lose, "ssh"))
    await first_list(losing.cluster)
    gang = losing.gang()
    handle = await losing.cluster.submit(gang)
    assert lab.slurm.run(
        "squeue", "--noheader", "--states=all", f"--name={gang.name}", "--format=%i"
    ).split() == [handle]


async def test_a_command_that_hangs_is_ended(lab: Bench):
    hang = 'case "$1" in sbatch*) sh -c "$1" >/dev/null; sleep 1000;; esac; exec sh -c "$1"'
    hanging = lab.with_settings(command=("sh", "-c", hang, "ssh"))
    cluster = SlurmCluster("lab", hanging.settings, lab.directory, command_seconds=3)
    gang = hanging.gang()
    handle = await cluster.submit(gang)
    assert await lab.cluster.submit(gang) == handle
    stuck = SlurmCluster(
        "lab",
        hanging.settings._replace(command=("sh", "-c", "sleep 1000", "ssh")),
        lab.directory,
        command_seconds=0.5,
    )
    with pytest.raises(Unreachable, match=r"squeue did not answer within 0\.5 s"):
        await stuck.look(handle)


async def test_a_controller_that_is_away_is_unreachable_and_nothing_else(lab: Bench):
    lab.program(WAIT)
    handle = await lab.cluster.submit(lab.gang())
    await lab.all_started("worker-0")
    lab.slurm.stop("slurmctld")
    try:
        with pytest.raises(Unreachable, match=r"squeue failed: .*Unable to contact slurm controller"):
            await first_list(lab.cluster)
        gang = lab.gang()
        for call in (lab.cluster.look(handle), lab.cluster.cancel(handle), lab.cluster.submit(gang)):
            with pytest.raises(Unreachable, match="Unable to contact slurm controller"):
                await call
    finally:
        lab.slurm.start("slurmctld")
        lab.slurm.wait(lab.slurm.is_up)
    found = await lab.cluster.look(handle)
    assert found is not None
    assert found.phase is Phase.RUNNING
    await lab.cluster.submit(gang)


async def test_commands_that_are_not_there(lab: Bench):
    environment = {**lab.settings.environment, "PATH": "/nowhere"}
    nowhere = SlurmCluster("lab", lab.settings._replace(environment=environment), lab.directory)
    with pytest.raises(Unreachable, match="squeue cannot be run: No such file or directory"):
        await nowhere.submit(lab.gang())


async def test_everything_works_through_a_shell_elsewhere(lab: Bench):
    remote = lab.with_settings(command=SSH)
    gang = remote.gang(role("worker", 2), role("ps", cpus=2, leads=False))
    handle = await remote.cluster.submit(gang)
    await remote.all_started("worker-0", "worker-1", "ps-0")
    assert (await remote.ended(handle)).end is EndKind.EXITED
    assert await remote.cluster.look("999999") is None
    await remote.cluster.cancel("999999")


async def test_an_ordinary_user(lab: Bench):
    become = 'exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -c "$1"'
    nobody = lab.with_settings(command=("sh", "-c", become, "ssh"))
    for path in (lab.directory, *lab.directory.rglob("*")):
        path.chmod(0o777)
    nobody.program("import sys\nsys.stderr.write('who am I\\n')\nsys.exit(5)")
    handle = await nobody.cluster.submit(nobody.gang())
    await nobody.ended(handle)
    assert "who am I" in await nobody.cluster.last_words(handle, ReplicaName("worker", 0))
    held = await nobody.cluster.submit(nobody.gang())
    await nobody.cluster.cancel(held)


# What Slurm refuses, and why jobs wait.


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"partition": "nowhere"}, "invalid partition specified: nowhere; Invalid partition name specified"),
        ({"constraint": "fast"}, "Invalid feature specification"),
        ({"options": ("--nonsense",)}, "unrecognized option '--nonsense'"),
        ({"options": ("--gres=gpu:100",)}, "Requested node configuration is not available"),
        ({"options": ("--mem-per-cpu=100G",)}, "Requested node configuration is not available"),
    ],
)
async def test_what_slurm_refuses(lab: Bench, settings: dict[str, object], message: str):
    refused = lab.with_settings(**settings)
    with pytest.raises(Refused) as error:
        await refused.cluster.submit(refused.gang())
    assert str(error.value).startswith("Slurm refused the job: ")
    assert message in str(error.value)


async def test_why_a_job_waits(lab: Bench):
    lab.program(WAIT)
    full = [role("worker", 4 * CPUS)]
    await lab.cluster.submit(lab.gang(*full))
    first = await lab.cluster.submit(lab.gang(*full))
    second = await lab.cluster.submit(lab.gang(*full))
    waits = await listed(lab, first, "Slurm: waiting for resources, 0 jobs before it in partition main")
    assert waits.phase is Phase.PENDING
    await listed(lab, second, "Slurm: waiting for its turn, 1 job before it in partition main")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"partition": "closed"}, "partition closed is down"),
        ({"options": ("--hold",)}, "its owner holds it (`scontrol release "),
        ({"options": ("--begin=now+1hour",)}, "waiting for its earliest start"),
        (
            {"partition": "short", "options": ("--time=10",)},
            "its time limit is above that of partition short",
        ),
        ({"options": ("--cpus-per-task=64",)}, "partition main can never give it what it asks for"),
    ],
)
async def test_reasons(lab: Bench, settings: dict[str, object], why: str):
    waiting = lab.with_settings(**settings)
    handle = await waiting.cluster.submit(waiting.gang())
    assert (await listed(waiting, handle, why)).phase is Phase.PENDING


async def test_jobs_without_a_limit_get_what_the_partition_allows(lab: Bench):
    short = lab.with_settings(partition="short", options=("--hold",))
    handle = await short.cluster.submit(short.gang(policy=Policy(time_limit=90)))
    assert lab.slurm.run("squeue", "--noheader", f"--jobs={handle}", "--format=%l").strip() == "2:00"


# Ends that the cluster knows.


async def test_cancel_ends_a_job_that_waits(lab: Bench):
    held = lab.with_settings(options=("--hold",))
    handle = await held.cluster.submit(held.gang())
    await held.cluster.cancel(handle)
    assert (await held.ended(handle)).end is EndKind.CANCELLED
    await held.cluster.cancel(handle)


async def test_cancel_sends_the_runners_a_signal_first(lab: Bench):
    lab.program(NOTE_TERM)
    handle = await lab.cluster.submit(lab.gang(role("worker", 2), role("ps", cpus=2, leads=False)))
    await lab.all_started("worker-0", "worker-1", "ps-0")
    await asyncio.sleep(0.5)
    await lab.cluster.cancel(handle)
    ended = await lab.ended(handle)
    assert (ended.end, ended.why) == (EndKind.CANCELLED, "Slurm: it was cancelled")
    assert sorted(path.stem for path in lab.directory.glob("*.term")) == ["ps-0", "worker-0", "worker-1"]


async def test_memory(lab: Bench):
    lab.program(f"if name == 'ps-0':\n    {MEMORY}\nelse:\n    import time\n    time.sleep(5)")
    handle = await lab.cluster.submit(lab.gang(role("worker"), role("ps", memory=100, leads=False)))
    ended = await lab.ended(handle)
    assert (ended.end, ended.why) == (
        EndKind.OUT_OF_MEMORY,
        "Slurm: it used more memory than it had asked for",
    )


async def test_a_node_is_lost(lab: Bench):
    far = lab.with_settings(partition="far")
    far.program(WAIT)
    handle = await far.cluster.submit(far.gang())
    await far.all_started("worker-0")
    lab.slurm.cut()
    try:
        ended = await far.ended(handle, 120)
    finally:
        lab.slurm.cut(False)
    assert (ended.end, ended.why) == (EndKind.NODE_LOST, "Slurm: one of its nodes failed")


async def test_preemption(lab: Bench):
    lab.program(NOTE_TERM)
    handle = await lab.cluster.submit(lab.gang(role("worker", 4 * CPUS)))
    await lab.all_started("worker-0")
    urgent = lab.with_settings(partition="urgent")
    urgent.program(NOTE_TERM)
    await urgent.cluster.submit(urgent.gang(role("chief")))
    ended = await lab.ended(handle)
    assert (ended.end, ended.why) == (EndKind.PREEMPTED, "Slurm: a job of higher priority took its place")
    await urgent.all_started("chief-0")


async def test_the_time_limit_of_slurm(lab: Bench):
    limited = lab.with_settings(options=("--time=1", "--signal=B:TERM@20"))
    limited.program(NOTE_TERM.replace("sys.exit(0)", "pass"))
    handle = await limited.cluster.submit(limited.gang())
    await limited.all_started("worker-0")
    await eventually(lambda: (lab.directory / "worker-0.term").exists())
    found = await limited.cluster.look(handle)
    assert found is not None
    assert found.phase is Phase.RUNNING  # the batch script passed the signal on before the limit
    ended = await limited.ended(handle, 150)
    assert (ended.end, ended.why) == (EndKind.TIME_LIMIT, "Slurm: its time limit was reached")


async def test_a_runner_that_is_killed(lab: Bench):
    lab.program(WAIT)
    handle = await lab.cluster.submit(lab.gang())
    os.kill((await lab.all_started("worker-0"))["worker-0"].pid, signal.SIGKILL)
    assert (await lab.ended(handle)).end is EndKind.EXITED


async def test_a_step_that_cannot_start_ends_the_gang(lab: Bench):
    tight = lab.with_settings(options=("--ntasks=1",))
    tight.program(NOTE_TERM)
    gang = tight.gang(role("worker"), role("ps", 3, leads=False))
    handle = await tight.cluster.submit(gang)
    assert (await tight.ended(handle)).end is EndKind.EXITED
    assert "Unable to create step" in await tight.cluster.last_words(handle, ReplicaName("ps", 0))


async def test_a_job_that_slurm_does_not_know(lab: Bench):
    assert await lab.cluster.look("999999") is None
    await lab.cluster.cancel("999999")
    assert await lab.cluster.last_words("999999", ReplicaName("worker", 0)) == ""


async def test_a_job_of_somebody_else_is_not_ours(lab: Bench):
    number = lab.slurm.run("sbatch", "--parsable", "--job-name=mine", "--hold", stdin="#!/bin/sh\n").strip()
    assert await lab.cluster.look(number) is None
    assert number not in [job.handle for job in await first_list(lab.cluster)]


# What a runner that never spoke printed.


@pytest.mark.parametrize("shared", [False, True])
async def test_last_words_of_a_runner_without_python(lab: Bench, shared: bool):
    top = (str(lab.directory),) if shared else ()
    without = lab.with_settings(python="/opt/python9", shared=top)
    await without.cluster.open()
    handle = await without.cluster.submit(without.gang(role("worker", 2), role("ps", leads=False)))
    ended = await without.ended(handle)
    assert ended.end is EndKind.EXITED
    words = await without.cluster.last_words(handle, ReplicaName("ps", 0))
    assert "execve(): /opt/python9: No such file or directory" in words
    assert "worker" not in words


async def test_last_words_of_a_runner_that_cannot_be_fetched(lab: Bench):
    gang = lab.gang()
    lab.archive.write_text("another version")
    handle = await lab.cluster.submit(gang)
    await lab.ended(handle)
    words = await lab.cluster.last_words(handle, ReplicaName("worker", 0))
    assert f"turnout: {lab.endpoint}/runner/v1/" in words
    assert "cannot be fetched: 404 Not Found" in words


@pytest.mark.parametrize("shared", [False, True])
async def test_every_runner_has_its_own_last_words(lab: Bench, shared: bool):
    talking = lab.with_settings(shared=(str(lab.directory),) if shared else ())
    await talking.cluster.open()
    talking.program("print('I am', name)\nraise SystemExit(3)")
    handle = await talking.cluster.submit(talking.gang(role("worker", 3)))
    await talking.ended(handle)
    words = await talking.cluster.last_words(handle, ReplicaName("worker", 2))
    assert "I am worker-2" in words
    assert "I am worker-1" not in words


# turnout cluster check


async def test_the_check_of_a_cluster_that_works(lab: Bench):
    results = [result async for result in lab.cluster.check(lab.gang().runner)]
    assert [result.what for result in results] == [
        "commands",
        "default partition main",
        "sbatch takes a job",
        "a node runs a job",
        f"a node reaches {lab.endpoint}",
    ]
    assert all(result.ok for result in results), results
    assert "sbatch, squeue, scancel, scontrol, sinfo on this machine: slurm-wlm 22.05" in results[0].detail
    assert results[3].detail.startswith("Python 3.")


@pytest.mark.parametrize(
    ("settings", "what", "detail"),
    [
        ({"command": ("sh", "-c", "exit 255", "ssh")}, "commands", "sbatch --version: exit code 255"),
        ({"partition": "nowhere"}, "partition nowhere", "Slurm does not know it"),
        ({"partition": "closed"}, "partition closed", "it is not up"),
        (
            {"constraint": "fast"},
            "sbatch takes a job",
            "Invalid feature specification with --constraint=fast",
        ),
        ({"python": "/opt/python9"}, "a node runs a job", "/opt/python9: not found"),
    ],
)
async def test_the_check_says_what_is_wrong(lab: Bench, settings: dict[str, object], what: str, detail: str):
    wrong = lab.with_settings(**settings)
    last = [result async for result in wrong.cluster.check(wrong.gang().runner)][-1]
    assert (last.what, last.ok) == (what, False)
    assert detail in last.detail


async def test_the_check_says_that_nodes_do_not_reach_the_service(lab: Bench):
    closed = lab.gang().runner._replace(endpoint=f"http://{lab.slurm.address}:9")
    last = [result async for result in lab.cluster.check(closed)][-1]
    assert (last.what, last.ok) == (f"a node reaches http://{lab.slurm.address}:9", False)
    assert "Connection refused" in last.detail
