"""kill -9 of the service at the worst moments of a job on Slurm: nothing is lost, repeated or started twice."""

import contextlib
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.dialects.modelarts.driving import Cloud as Huawei
from tests.dialects.vertex.driving import Cloud as Google
from tests.running import Service, running
from tests.slurm.daemons import Slurm
from tests.slurm.test_service import CLUSTER, CONFIG, ended

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

TASKS = ("worker-0", "worker-1")
POINTS = (
    "launched", "submitted", "accepted", "claimed", "arrived", "began", "told", "over", "saved", "forgotten",
)  # fmt: skip
PROGRAM = """\
echo $VC_TASK_INDEX >> {runs}
for i in $(seq 30); do echo line $i; sleep 0.02; done
echo data of $VC_TASK_INDEX > "$model/part-$VC_TASK_INDEX"
"""
KILLED_ONCE = """
import os, signal
print("up", flush=True)
with open({runs!r}, "a") as runs:
    runs.write("run\\n")
if len(open({runs!r}).readlines()) == 1:
    os.kill(os.getpid(), signal.SIGKILL)
print("done", flush=True)
"""


@contextlib.contextmanager
def killed_at(point: str, slurm: Slurm):
    """A service that kills itself when it gets there for the first time. The test starts it again."""
    with running(env={"SLURM_CONF": slurm.environment["SLURM_CONF"]}) as service:
        service.config.write_text(f'{CONFIG}\n[runner]\nurl = "http://{slurm.address}:{service.port}"\n')
        service.start("--host", "0.0.0.0", TURNOUT_KILL_AT=f"remote.{point}")
        yield service
    slurm.wait(lambda: not slurm.run("squeue", "--noheader"))


def start_again(service: Service) -> None:
    assert service.process
    service.process.wait(60)
    service.start("--host", "0.0.0.0")


@pytest.mark.parametrize("point", POINTS)
def test_the_service_is_killed_at_a_critical_point(slurm: Slurm, place: Path, point: str):
    runs = place / f"runs-{point}"
    with killed_at(point, slurm) as service:
        output = {"name": "model", "remote": {"obs": {"obs_url": "/kills/out/"}}}
        with contextlib.suppress(Exception):  # it may die before it answers
            Huawei(service).create(
                "killed",
                PROGRAM.format(runs=runs),
                algorithm={"outputs": [output]},
                spec={"resource": {"pool_id": "pool-slurm", "node_count": 2}},
            )
        start_again(service)
        job = ended(service, "killed")
        assert job["state"] == "succeeded", job["message"]
        assert sorted(runs.read_text().split()) == ["0", "1"]
        huawei = Huawei(service)
        for task in TASKS:
            said = [line for line in huawei.log(job["uuid"], task).splitlines() if line.startswith("line")]
            assert said == [f"line {number}" for number in range(1, 31)]
        parts = {path.name: path.read_text() for path in (service.data / "buckets/kills/out").iterdir()}
        assert parts == {f"part-{index}": f"data of {index}\n" for index in range(2)}
        found = slurm.run("squeue", "--noheader", "--states=all", f"--name=turnout-{job['id']}.1")
        assert len(found.splitlines()) == 1, found
        slurm.wait(lambda: not slurm.run("squeue", "--noheader"))
        assert not [one.pid for one in psutil.process_iter() if job["id"] in " ".join(arguments(one))]


def arguments(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def test_the_service_is_killed_before_a_runner_learns_of_a_restart(slurm: Slurm, place: Path):
    runs = str(place / "runs-again")
    with killed_at("again", slurm) as service:
        google = Google(service, "default")
        job: Any = google.create(
            {
                "machineSpec": {"machineType": "n1-standard-4"},
                "replicaCount": 1,
                "containerSpec": {
                    "imageUri": "python:3.11",
                    "command": ["python", "-c", KILLED_ONCE.format(runs=runs)],
                },
            },
            spec={"persistentResourceId": CLUSTER},
        )
        start_again(service)
        ended(service, job["name"].rpartition("/")[2])
        assert google.get(job["name"])["state"] == "JOB_STATE_SUCCEEDED"
        assert Path(runs).read_text() == "run\n" * 2
        said = [one.get("textPayload") for one in google.entries(job)["entries"]]
        said = [text for text in said if text in ("up", "done")]
        assert said == ["up", "up", "done"]
