"""What a real Slurm says of gangs: why it refuses them, why they wait and ended, and what their runners printed."""

import asyncio
import os
import signal

import pytest

from tests.slurm.daemons import CPUS
from tests.slurm.harness import NOTE_TERM, WAIT, Bench, eventually, first_list, listed, role
from turnout.engines import Refused
from turnout.engines.remote import EndKind, Phase
from turnout.job import Policy, ReplicaName

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

MEMORY = "x = bytearray(600 << 20)"


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
    held = ["--parsable", "--job-name=mine", "--hold", "--output=/dev/null"]
    number = lab.slurm.run("sbatch", *held, stdin="#!/bin/sh\n").strip()
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
