"""The cluster against a real Slurm of four nodes, with a stand-in for the runner: gangs, nodes, and lost answers."""

from pathlib import Path

import pytest

from tests.slurm.daemons import CPUS, GPUS
from tests.slurm.harness import TOKEN, WAIT, Bench, first_list, role
from turnout.engines import Unreachable
from turnout.engines.remote import EndKind, Phase
from turnout.engines.slurm import SlurmCluster
from turnout.job import Program, ReplicaName, Resources, Role

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

# As ssh does: its last arguments are joined and run by a shell.
SSH = ("sh", "-c", 'exec sh -c "$*"', "ssh")


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
