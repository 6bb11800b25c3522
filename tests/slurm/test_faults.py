"""What Slurm, nodes, networks and preemption do to jobs: each runs once, ends as it ended, and loses no line."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.dialects.modelarts.driving import Cloud as Huawei
from tests.running import Service, running
from tests.slurm.daemons import Slurm
from tests.slurm.test_service import CLUSTER, CONFIG, ended, lines, submit
from tests.web.visitor import open_page

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SQUEUE = """\
#!/bin/sh
case $(cat {mode}) in
    empty) exit 0 ;;
    fails) echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1 ;;
esac
exec /usr/bin/squeue "$@"
"""
SMALL = {"MasterType": "1U1G0P", "WorkerType": "1U1G0P"}
COUNT = """\
import sys, time
with open({runs!r}, "a") as file:
    file.write("run\\n")
for i in range({lines}):
    print(i, flush=True)
    time.sleep(0.1)
sys.exit({code})
"""


@pytest.fixture(scope="module")
def squeue(place: Path) -> Path:
    """What is written to it decides what squeue answers: `empty`, `fails`, or nothing for the true answer."""
    mode = place / "squeue.mode"
    mode.write_text("")
    (place / "bin").mkdir()
    (place / "bin/squeue").write_text(SQUEUE.format(mode=mode))
    (place / "bin/squeue").chmod(0o755)
    return mode


@pytest.fixture(scope="module")
def service(slurm: Slurm, squeue: Path) -> Iterator[Service]:
    path = f"{squeue.parent / 'bin'}:{os.environ['PATH']}"
    with running(env={"SLURM_CONF": slurm.environment["SLURM_CONF"], "PATH": path}) as one:
        yield begin(one, slurm)


@pytest.fixture(autouse=True)
def repaired(slurm: Slurm) -> Iterator[None]:
    yield
    slurm.cancel_all()
    # A node on which Slurm finds a job twice is drained.
    for node in slurm.nodes:
        subprocess.run(
            ["scontrol", "update", f"node={node}", "state=resume"],
            env=slurm.environment, capture_output=True, timeout=60,
        )  # fmt: skip
    slurm.wait_idle()


def begin(service: Service, slurm: Slurm) -> Service:
    service.config.write_text(f'{CONFIG}\n[runner]\nurl = "http://{slurm.address}:{service.port}"\n')
    return service.start("--host", "0.0.0.0")


def counting(runs: Path, lines: int, code: int) -> tuple[str, ...]:
    return ("python", "-c", COUNT.format(runs=str(runs), lines=lines, code=code))


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def eventually(condition: Callable[[], Any], seconds: float = 120) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)
    return found


def runner_of(service: Service, name: str, which: str = "master-0") -> psutil.Process:
    """The process of a replica's runner."""
    gang = f"{CLUSTER}/{service.native(f'/jobs/{name}')['id']}.1"
    role, _, index = which.rpartition("-")
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
            # The first on a node starts Python again, with its address. The others stay what srun started.
            stayed = command[-4:-2] == [gang, role] and f"/task_{index}\n" in cgroups(process)
            if stayed or command[-1:] == [f"{gang}/{which}"]:
                return process
        except psutil.Error:
            continue
    raise AssertionError(f"no process is the runner of {which} of {gang}")


def cgroups(process: psutil.Process) -> str:
    try:
        return Path(f"/proc/{process.pid}/cgroup").read_text()
    except OSError:
        return ""


def kill_controller(slurm: Slurm) -> None:
    """A second after a submit: Slurm forgets that it started the job, kills it, and tries to start it again."""
    eventually(lambda: slurm.run("squeue", "--noheader"))
    time.sleep(1)
    slurm.stop("slurmctld", signal.SIGKILL)
    slurm.start("slurmctld")


def test_a_controller_that_is_killed_after_the_submit(service: Service, slurm: Slurm, place: Path):
    runs = place / "runs"
    submit(service, "restarted", *counting(runs, 150, 5))
    kill_controller(slurm)
    job = ended(service, "restarted")
    assert runs.read_text() == "run\n"
    said = lines(service, "restarted")
    assert said == numbers(len(said))
    [replica] = job["replicas"]
    if replica["exit_code"] == 5:
        assert len(said) == 150
    else:
        assert (job["state"], job["reason"]) == ("failed", "node lost"), job
        assert said


def test_a_job_that_a_killed_controller_lost_is_retried(service: Service, slurm: Slurm, place: Path):
    huawei = Huawei(service)
    runs = place / "retried"
    made = huawei.create(
        "retried",
        f"echo attempt $MA_SCHEDULE_CNT >> {runs}; for i in $(seq 100); do echo line $i; sleep 0.1; done",
        metadata={"annotations": {"fault-tolerance/job-retry-num": "1"}},
        spec={"resource": {"pool_id": "pool-slurm", "node_count": 1}},
    ).metadata.id
    kill_controller(slurm)
    job = ended(service, "retried")
    assert job["state"] == "succeeded", job
    attempts = [f"attempt {number}" for number in range(1, job["attempt"] + 1)]
    assert runs.read_text().splitlines() == attempts
    said = [line for line in huawei.log(made).splitlines() if line.startswith("line")]
    assert said[-100:] == [f"line {number}" for number in range(1, 101)]
    assert said[:-100] == [f"line {number}" for number in range(1, len(said) - 99)]
    assert bool(said[:-100]) == (job["attempt"] == 2)


def test_a_node_that_is_lost_under_a_gang(service: Service, slurm: Slurm):
    # One core of each node is left, so each replica has a node of its own.
    slurm.run(
        "sbatch", "--nodes=4", "--ntasks-per-node=1", "--cpus-per-task=3", "--output=/dev/null", "--no-requeue",
        stdin="#!/bin/sh\nsleep 600\n",
    )  # fmt: skip
    huawei = Huawei(service)
    program = 'echo attempt $MA_SCHEDULE_CNT; [ "$MA_SCHEDULE_CNT" -gt 1 ] || sleep 600'
    made = huawei.create(
        "node-lost",
        program,
        metadata={"annotations": {"fault-tolerance/job-retry-num": "1"}},
        spec={"resource": {"pool_id": "pool-slurm", "node_count": 2}},
    ).metadata.id
    for task in ("worker-0", "worker-1"):
        huawei.wait_for(made, "attempt 1", task, 120)
    listed = slurm.run("squeue", "--noheader", "--format=%j %N").splitlines()
    [nodes] = [line.split()[1] for line in listed if line.startswith("turnout-")]
    last = slurm.run("scontrol", "show", "hostnames", nodes).split()[-1]
    slurm.stop(last, signal.SIGKILL)
    try:
        job = ended(service, "node-lost")
    finally:
        slurm.start(last)
    assert job["state"] == "succeeded", job
    first, second = huawei.details(made).status.running_records
    assert first.recover_records[0].fault_scenario == "node_fault"
    assert "one of its nodes failed" in first.end_reason, first
    assert second.end_reason == "job completed"
    for task in ("worker-0", "worker-1"):
        said = [line for line in huawei.log(made, task).splitlines() if line.startswith("attempt")]
        assert said == ["attempt 1", "attempt 2"]


def test_a_runner_that_is_killed(service: Service, place: Path):
    beat = place / "beat"
    submit(service, "bereft", "sh", "-c", f"echo up; (while sleep 0.1; do date +%N > {beat}; done); true")
    eventually(lambda: beat.exists() and lines(service, "bereft") == ["up"])
    runner_of(service, "bereft").kill()
    time.sleep(2)
    last = beat.read_text()
    job = ended(service, "bereft")
    assert beat.read_text() == last, "its program went on"
    assert (job["state"], job["reason"]) == ("failed", "node lost")
    assert "its runner ended without a report" in job["message"], job
    assert lines(service, "bereft") == ["up"]


def test_one_runner_of_a_gang_is_killed(service: Service):
    """Slurm goes on to say that the job runs, but srun says which task has ended."""
    submit(service, "decimated", "sh", "-c", "echo up; sleep 600", ScaleTier="CUSTOM", WorkerCount=2, **SMALL)
    eventually(lambda: lines(service, "decimated") == ["up"] * 3)
    runner_of(service, "decimated", "worker-1").kill()
    job = ended(service, "decimated")
    assert (job["state"], job["reason"]) == ("failed", "node lost"), job
    assert "worker-1" in job["message"], job
    assert "its runner ended without a report" in job["message"], job


def test_a_node_that_does_not_reach_the_service_for_a_while(service: Service, slurm: Slurm, place: Path):
    runs = place / "cut"
    for node in slurm.nodes[:3]:
        slurm.run("scontrol", "update", f"node={node}", "state=drain", "reason=test")
    submit(service, "cut-off", *counting(runs, 150, 6))
    eventually(lambda: len(lines(service, "cut-off")) > 10)
    slurm.cut()
    try:
        time.sleep(1)
        before = lines(service, "cut-off")
        time.sleep(5)
        assert lines(service, "cut-off") == before
    finally:
        slurm.cut(off=False)
    job = ended(service, "cut-off")
    assert job["replicas"][0]["exit_code"] == 6, job
    assert lines(service, "cut-off") == numbers(150)
    assert runs.read_text() == "run\n"


@pytest.mark.parametrize("mode", ["empty", "fails"])
def test_a_list_that_lacks_everything_ends_nothing(service: Service, squeue: Path, place: Path, mode: str):
    runs = place / f"squeue-{mode}"
    submit(service, f"before-{mode}", *counting(runs, 80, 7))
    service.wait(f"before-{mode}", "started", 120)
    squeue.write_text(mode)
    try:
        submit(service, f"meanwhile-{mode}", *counting(runs, 1, 8))
        for name, code, count in (("before", 7, 80), ("meanwhile", 8, 1)):
            job = ended(service, f"{name}-{mode}")
            assert job["replicas"][0]["exit_code"] == code, job
            assert lines(service, f"{name}-{mode}") == numbers(count)
    finally:
        squeue.write_text("")
    assert runs.read_text() == "run\n" * 2


def test_a_job_of_higher_priority_takes_the_place(service: Service, slurm: Slurm, place: Path):
    """The job goes back to the queue, and runs when the other has ended."""
    mark = place / "displaced"
    program = f"if [ -e {mark} ]; then echo again; exit 4; fi; touch {mark}; echo up; sleep 600"
    submit(service, "displaced", "sh", "-c", program)
    eventually(lambda: lines(service, "displaced") == ["up"])
    slurm.run(
        "sbatch", "--partition=urgent", "--nodes=4", "--exclusive", "--output=/dev/null",
        stdin="#!/bin/sh\nsleep 1\n",
    )  # fmt: skip
    job = ended(service, "displaced")
    assert job["replicas"][0]["exit_code"] == 4, job
    assert lines(service, "displaced")[-1] == "again"
    assert "PREEMPTED" in slurm.run("squeue", "--noheader", "--states=all", "--format=%T")


def test_a_shell_beside_a_program_on_a_node(service: Service):
    submit(service, "visited", "sh", "-c", "echo up; sleep 600", Debug=True)
    service.wait("visited", "started", 120)
    with open_page(service.native("/jobs/visited/shells")["uris"]["master-0"]).socket() as socket:
        socket.type("echo I am in $SLURM_JOB_ID; stty size\n")
        assert re.search(r"I am in \d+\r\n", socket.until("20 90\r\n"))
        socket.type("exit 3\n")
        assert socket.rest() == {"exit": 3}
    service.delete("visited", CLUSTER)
