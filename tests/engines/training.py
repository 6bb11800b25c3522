"""Real training with the frameworks of the slow environment and the clouds' own clients, the same on every cluster.

class TestSlurm(RealTraining):
    @pytest.fixture
    def lab(self, ...) -> Lab: ...
"""

from typing import Any, NamedTuple

import pytest

from tests.dialects.modelarts.driving import Cloud as Huawei
from tests.dialects.modelarts.driving import get
from tests.dialects.vertex.driving import Cloud as Google
from tests.dialects.vertex.tuning.test_sdk import created
from tests.running import ROOT, Service
from tests.whole.test_frameworks import TENSORFLOW

SECONDS = 240
ENGINE = "pytorch_2.13.0-py_3.11-ubuntu_22.04-x86_64"
TUNE = "team/tune:1"
PYTHON = ROOT / ".venv-slow/bin/python"
RUNTIMES = f"""
[images]
"{TUNE}" = "tune"

[runtimes."{ENGINE}"]
python = "{PYTHON}"
[runtimes."tia-1.7.0"]
python = "{PYTHON}"
[runtimes.tune]
python = "{PYTHON}"
"""
"""Settings for clusters whose nodes have the frameworks where this machine has them."""

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
print("ran in", os.environ.get("SLURM_JOB_ID", os.uname().nodename), flush=True)
"""


class Lab(NamedTuple):
    service: Service
    cluster: str
    pool: str
    """The pool of ModelArts that is the cluster."""
    tia: str
    """The size of TI-A's replicas."""
    vertex: str
    """The machine of Vertex' trials."""
    memory: int = 4
    """GB of ModelArts' nodes."""
    gpus: int = 0
    """Of ModelArts' nodes."""
    addresses: frozenset[str] = frozenset()
    """Of the nodes; empty: each replica has one of its own."""
    image: str = TUNE
    """Of Vertex' trials."""
    places: int = 3
    """In how many the three trials are, as they see it."""


class RealTraining:
    def test_torch_trains_on_two_nodes(self, lab: Lab):
        lab.service.put("obs://programs/torch/train.py", TORCH)
        lab.service.put("obs://digits/points/points.txt", POINTS)
        huawei = Huawei(lab.service)
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
            "spec": {"resource": resource(lab, 2)},
        }
        made = huawei("create_training_job", body=body).metadata.id
        job = lab.service.wait("torch", timeout=SECONDS)
        said = [huawei.log(made, f"worker-{rank}") for rank in range(2)]
        assert job["state"] == "succeeded", "\n".join([job["message"], *said])
        addresses = {replica["name"]: replica["address"] for replica in job["replicas"]}
        assert len(set(addresses.values())) == 2
        assert lab.addresses in (frozenset(), set(addresses.values()))
        for rank in range(2):
            assert f"rank {rank} of 2, tcp://{addresses['worker-0']}:" in said[rank]
            assert f"rank {rank}: loss 0.00" in said[rank]
        assert get(lab.service, "obs://models/line/model.txt") == "2.00 1.00"
        assert (lab.service.data / "buckets/models/line/checkpoint.pt").stat().st_size > 500

    def test_tensorflow_trains_with_a_parameter_server(self, lab: Lab):
        sizes = dict.fromkeys(("MasterType", "WorkerType", "ParameterServerType"), lab.tia)
        roles = {"ScaleTier": "CUSTOM", "WorkerCount": 2, "ParameterServerCount": 1} | sizes
        lab.service.create("tensorflow", "python", "-c", TENSORFLOW, Cluster=lab.cluster, **roles)
        job = lab.service.wait("tensorflow", timeout=SECONDS)
        lines = [log.Log for log in lab.service.logs("tensorflow", lab.cluster)]
        assert job["state"] == "succeeded", "\n".join([job["message"], *lines])
        assert "weight 5.0" in lines

    def test_trials_of_a_tuning_job(self, lab: Lab):
        google = Google(lab.service, "default")
        pool = {
            "machine_spec": {"machine_type": lab.vertex},
            "replica_count": 1,
            "container_spec": {"image_uri": lab.image, "command": ["python", "-c", LEARN]},
        }
        rates = {"parameter_id": "rate", "double_value_spec": {"min_value": 0.1, "max_value": 1}}
        study = {"metrics": [{"metric_id": "loss", "goal": "MINIMIZE"}], "parameters": [rates]}
        asked = {
            "display_name": "tuning",
            "study_spec": study,
            "max_trial_count": 3,
            "parallel_trial_count": 2,
            "trial_job_spec": {"worker_pool_specs": [pool], "persistent_resource_id": lab.cluster},
        }
        client = google.client()
        made = created(client, google, asked)
        job = lab.service.wait(made.name.rpartition("/")[2], timeout=SECONDS)
        assert job["state"] == "succeeded", job["message"]
        trials = client.get_hyperparameter_tuning_job(name=made.name).trials
        assert [trial.id for trial in trials] == ["1", "2", "3"]
        places: set[str] = set()
        for trial in trials:
            assert len(trial.measurements) == 5
            (metric,) = trial.final_measurement.metrics
            rate: Any = trial.parameters[0].value
            assert metric.value == pytest.approx(loss_after(5, rate))
            entries = google.entries({"name": trial.custom_job})["entries"]
            [line] = [line for entry in entries if (line := _message(entry)).startswith("ran in ")]
            places.add(line)
        assert len(places) == lab.places


def resource(lab: Lab, nodes: int) -> dict[str, Any]:
    """Of a ModelArts job."""
    sizes = {"cpu_core_num": 1, "mem_size": lab.memory, "accelerator_num": lab.gpus}
    return {"pool_id": lab.pool, "node_count": nodes, "main_container_customized_flavor": sizes}


def loss_after(steps: int, rate: float) -> float:
    points = [number / 19 for number in range(20)]
    square = sum(x * x for x in points) / 20
    slope = 0.0
    for _ in range(steps):
        slope -= rate * 2 * (slope - 3) * square
    return (slope - 3) ** 2 * square


def _message(entry: Any) -> str:
    return entry.get("textPayload") or entry.get("jsonPayload", {}).get("message", "")
