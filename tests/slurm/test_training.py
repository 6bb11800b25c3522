"""Real training on a real Slurm, with the frameworks of the slow environment and the clouds' own clients."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dialects.modelarts.driving import Cloud as Huawei
from tests.dialects.modelarts.driving import get
from tests.dialects.vertex.driving import Cloud as Google
from tests.dialects.vertex.tuning.test_sdk import created
from tests.running import ROOT, Service, running
from tests.slurm.daemons import Slurm
from tests.whole.test_frameworks import TENSORFLOW

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SECONDS = 240
CLUSTER = "ap-shanghai"
ENGINE = "pytorch_2.13.0-py_3.11-ubuntu_22.04-x86_64"
PYTHON = ROOT / ".venv-slow/bin/python"
CONFIG = f"""
[clusters.{CLUSTER}]
engine = "slurm"
python = "/usr/bin/python3"

[pools.pool-slurm]
cluster = "{CLUSTER}"

[images]
"team/tune:1" = "tune"

[runtimes."{ENGINE}"]
python = "{PYTHON}"
[runtimes."tia-1.7.0"]
python = "{PYTHON}"
[runtimes.tune]
python = "{PYTHON}"
"""

TORCH = """
import argparse, os, pathlib, socket
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--data_url", type=pathlib.Path)
parser.add_argument("--train_url", type=pathlib.Path)
parser.add_argument("--init_method")
parser.add_argument("--rank", type=int)
parser.add_argument("--world_size", type=int)
args = parser.parse_args()
print(f"rank {args.rank} of {args.world_size}, {args.init_method}", flush=True)
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=args.init_method, rank=args.rank, world_size=args.world_size)
rows = [line.split() for line in (args.data_url / "points.txt").read_text().splitlines()]
mine = torch.tensor([[float(x), float(y)] for x, y in rows[args.rank :: args.world_size]])
model = DistributedDataParallel(torch.nn.Linear(1, 1))
kept = args.train_url / "checkpoint.pt"
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(200):
    loss = (model(mine[:, :1]) - mine[:, 1:]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if args.rank == 0:
    torch.save(model.module.state_dict(), kept)
    line = [model.module.weight.item(), model.module.bias.item()]
    (args.train_url / "model.txt").write_text(" ".join(f"{value:.2f}" for value in line))
dist.barrier()
print(f"rank {args.rank}: loss {loss.item():.6f}", flush=True)
# After a training that went well, gloo's threads sometimes abort the process while it ends.
os._exit(0)
"""
POINTS = "".join(f"{x / 10} {2 * x / 10 + 1}\n" for x in range(20))

LEARN = """
import os, sys
import hypertune
import numpy

rate = float(sys.argv[1].removeprefix("--rate="))
points = numpy.linspace(0, 1, 20)
slope = 0.0
reporter = hypertune.HyperTune()
for step in range(1, 6):
    slope -= rate * numpy.mean(2 * (slope * points - 3 * points) * points)
    loss = numpy.mean((slope * points - 3 * points) ** 2)
    reporter.report_hyperparameter_tuning_metric("loss", loss, step)
print("Slurm job", os.environ["SLURM_JOB_ID"], flush=True)
"""


@pytest.fixture(scope="module")
def service(slurm: Slurm) -> Iterator[Service]:
    with running(env={"SLURM_CONF": slurm.environment["SLURM_CONF"]}) as one:
        one.config.write_text(f'{CONFIG}\n[runner]\nurl = "http://{slurm.address}:{one.port}"\n')
        yield one.start("--host", "0.0.0.0")


def resource(nodes: int, cores: int, memory: int, gpus: int = 0) -> dict[str, Any]:
    sizes = {"cpu_core_num": cores, "mem_size": memory, "accelerator_num": gpus}
    return {"pool_id": "pool-slurm", "node_count": nodes, "main_container_customized_flavor": sizes}


def test_torch_trains_on_two_nodes(service: Service, slurm: Slurm):
    service.put("obs://programs/torch/train.py", TORCH)
    service.put("obs://digits/points/points.txt", POINTS)
    huawei = Huawei(service)
    body = {
        "kind": "job",
        "metadata": {"name": "torch"},
        "algorithm": {
            "code_dir": "/programs/torch/",
            "boot_file": "/programs/torch/train.py",
            "engine": {"engine_id": ENGINE},
            "inputs": [{"name": "data_url", "remote": {"obs": {"obs_url": "/digits/points/"}}}],
            "outputs": [{"name": "train_url", "remote": {"obs": {"obs_url": "/models/line/"}}}],
        },
        # Two nodes have two GPUs each, and one of them has a network address of its own.
        "spec": {"resource": resource(2, cores=1, memory=4, gpus=2)},
    }
    made = huawei("create_training_job", body=body).metadata.id
    job = service.wait("torch", timeout=SECONDS)
    said = [huawei.log(made, f"worker-{rank}") for rank in range(2)]
    assert job["state"] == "succeeded", "\n".join([job["message"], *said])
    lead = slurm.near if f"tcp://{slurm.near}" in said[0] else slurm.far
    for rank in range(2):
        assert f"rank {rank} of 2, tcp://" in said[rank]
        assert f"rank {rank}: loss 0.00" in said[rank]
    addresses = {replica["address"] for replica in job["replicas"]}
    assert addresses == {slurm.near, slurm.far}
    assert lead in addresses
    assert get(service, "obs://models/line/model.txt") == "2.00 1.00"
    checkpoint = service.data / "buckets/models/line/checkpoint.pt"
    assert checkpoint.stat().st_size > 500


def test_tensorflow_trains_with_a_parameter_server(service: Service):
    sizes = dict.fromkeys(("MasterType", "WorkerType", "ParameterServerType"), "2U3G0P")
    roles = {"ScaleTier": "CUSTOM", "WorkerCount": 2, "ParameterServerCount": 1} | sizes
    service.create("tensorflow", "python", "-c", TENSORFLOW, Cluster=CLUSTER, **roles)
    job = service.wait("tensorflow", timeout=SECONDS)
    lines = [log.Log for log in service.logs("tensorflow", CLUSTER)]
    assert job["state"] == "succeeded", "\n".join([job["message"], *lines])
    assert "weight 5.0" in lines


def test_trials_of_a_tuning_job(service: Service):
    google = Google(service, "default")
    container = {"image_uri": "team/tune:1", "command": ["python", "-c", LEARN]}
    pool = {
        "machine_spec": {"machine_type": "n1-standard-4"},
        "replica_count": 1,
        "container_spec": container,
    }
    rates = {"parameter_id": "rate", "double_value_spec": {"min_value": 0.1, "max_value": 1}}
    study = {"metrics": [{"metric_id": "loss", "goal": "MINIMIZE"}], "parameters": [rates]}
    asked = {
        "display_name": "tuning",
        "study_spec": study,
        "max_trial_count": 3,
        "parallel_trial_count": 2,
        "trial_job_spec": {"worker_pool_specs": [pool], "persistent_resource_id": CLUSTER},
    }
    client = google.client()
    made = created(client, google, asked)
    job = service.wait(made.name.rpartition("/")[2], timeout=SECONDS)
    assert job["state"] == "succeeded", job["message"]
    trials = client.get_hyperparameter_tuning_job(name=made.name).trials
    assert [trial.id for trial in trials] == ["1", "2", "3"]
    numbers: set[str] = set()
    for trial in trials:
        assert len(trial.measurements) == 5
        (metric,) = trial.final_measurement.metrics
        rate: Any = trial.parameters[0].value
        assert metric.value == pytest.approx(loss_after(5, rate))
        entries = google.entries({"name": trial.custom_job})["entries"]
        [line] = [line for entry in entries if (line := message(entry)).startswith("Slurm job")]
        numbers.add(line)
    assert len(numbers) == 3, "each trial is a job of its own on Slurm"


def message(entry: Any) -> str:
    return entry.get("textPayload") or entry.get("jsonPayload", {}).get("message", "")


def loss_after(steps: int, rate: float) -> float:
    points = [number / 19 for number in range(20)]
    square = sum(x * x for x in points) / 20
    slope = 0.0
    for _ in range(steps):
        slope -= rate * 2 * (slope - 3) * square
    return (slope - 3) ** 2 * square


def test_tasks_of_different_kinds_are_one_gang(service: Service):
    tasks: list[dict[str, Any]] = []
    for role in ("learner", "actor"):
        write = f"open(os.environ['out'] + '/' + os.environ['MA_TASK_NAME'], 'w').write('{role}')"
        show = "print(os.environ['VC_LEARNER_HOSTS'], os.environ['VC_ACTOR_HOSTS'])"
        service.put(f"obs://programs/{role}/run.py", f"import os\n{write}\n{show}\n")
        output = {"name": "out", "access_method": "env", "remote": {"obs": {"obs_url": f"/tasks/{role}/"}}}
        algorithm = {
            "code_dir": f"/programs/{role}/",
            "boot_file": f"/programs/{role}/run.py",
            "engine": {"engine_id": ENGINE},
            "outputs": [output],
        }
        tasks.append({"role": role, "algorithm": algorithm, "task_resource": resource(1, cores=1, memory=1)})
    huawei = Huawei(service)
    metadata = {"name": "tasks", "annotations": {"job_template": "Template RL"}}
    made = huawei("create_training_job", body={"kind": "job", "metadata": metadata, "tasks": tasks})
    assert made.status.tasks == ["learner-0", "actor-0"]
    job = service.wait("tasks", timeout=SECONDS)
    said = huawei.log(made.metadata.id, "learner-0")
    assert job["state"] == "succeeded", (job["message"], said)
    assert re.search(r"\S*learner-0\S* \S*actor-0", said), said
    for role in ("learner", "actor"):
        assert get(service, f"obs://tasks/{role}/{role}") == role
