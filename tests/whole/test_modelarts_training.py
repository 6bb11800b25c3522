"""A training job of two nodes: one worker is killed, the job is retried and succeeds."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.modelarts.conftest import sdk_home as sdk_home
from tests.dialects.modelarts.driving import Cloud, get, put
from tests.running import ROOT, Service, reachable_directory, running
from tests.stores import S3, s3
from tests.whole.test_frameworks import mounted

__all__ = ["s3"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ENGINE = "pytorch_2.5.1-cuda_12.4-py_3.11-ubuntu_22.04-x86_64"
HOROVOD = "horovod_0.22.1-pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"

TRAIN = """
import argparse, os, pathlib, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--data_url", type=pathlib.Path)
parser.add_argument("--train_url", type=pathlib.Path)
parser.add_argument("--epochs", type=int)
parser.add_argument("--init_method")
parser.add_argument("--rank", type=int)
parser.add_argument("--world_size", type=int)
args = parser.parse_args()
kept = pathlib.Path(os.environ.get("CHECKPOINTS", args.train_url)) / "checkpoint.pt"

dist.init_process_group("gloo", init_method=args.init_method, rank=args.rank, world_size=args.world_size)
rows = [line.split() for line in (args.data_url / "points.txt").read_text().splitlines()]
mine = torch.tensor([[float(x), float(y)] for x, y in rows[args.rank :: args.world_size]])
x, y = mine[:, :1], mine[:, 1:]
torch.manual_seed(args.rank)
model = DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
first = 0
if kept.exists():
    state = torch.load(kept)
    model.module.load_state_dict(state["model"])
    first = state["epoch"] + 1
print(f"attempt {os.environ['MA_SCHEDULE_CNT']} begins with epoch {first}", flush=True)
for epoch in range(first, args.epochs):
    for _ in range(20):
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if args.rank == 0:
        torch.save({"epoch": epoch, "model": model.module.state_dict()}, f"{kept}.new")
        os.replace(f"{kept}.new", kept)
    dist.barrier()
    print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    if epoch == 2 and args.rank == 1:
        print("waits to be killed", flush=True)
        time.sleep(600)
if args.rank == 0:
    weight, bias = model.module.weight.item(), model.module.bias.item()
    (args.train_url / "model.txt").write_text(f"{weight:.2f} {bias:.2f}")
# After a training that went well, gloo's threads sometimes abort the process while it ends.
os._exit(0)
"""

POINTS = "".join(f"{x / 10} {2 * x / 10 + 1}\n" for x in range(20))


@contextmanager
def with_frameworks(buckets: str = "") -> Iterator[Service]:
    """A service whose engines have the packages and programs of the slow environment."""
    with reachable_directory() as directory, mounted(ROOT / ".venv-slow", directory / "venv") as reachable:
        packages = next((reachable / "lib").glob("python3.*/site-packages"))
        shown = f'{{ "/opt/packages" = "{packages}", "/opt/venv" = "{reachable}" }}'
        runtimes = "".join(f'[runtimes."{name}"]\nmounts = {shown}\n' for name in (ENGINE, HOROVOD))
        with running(f'[engines.local]\nsandbox = "bubblewrap"\n{runtimes}{buckets}') as service:
            yield service.start()


@pytest.fixture(params=["embedded", "s3"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    """Its buckets for data and models are embedded, or in a remote object store."""
    buckets = ""
    if request.param == "s3":
        store: S3 = request.getfixturevalue("s3")
        for name in ("digits", "models"):
            lines = [f'{key} = "{value}"' for key, value in store.backing().items()]
            buckets += "\n".join([f"[storage.buckets.{name}]", *lines, "allow_http = true", ""])
    with with_frameworks(buckets) as one:
        one.real_store = bool(buckets)  # type: ignore[attr-defined]
        yield one


def document(service: Service) -> dict[str, Any]:
    body: dict[str, Any] = {
        "kind": "job",
        "metadata": {"name": "torch", "annotations": {"fault-tolerance/job-retry-num": "1"}},
        "algorithm": {
            "code_dir": f"/programs/torch-{service.port}/",
            "boot_file": f"/programs/torch-{service.port}/train.py",
            "engine": {"engine_id": ENGINE},
            "parameters": [{"name": "epochs", "value": "6", "constraint": {"type": "Integer"}}],
            "inputs": [{"name": "data_url", "remote": {"obs": {"obs_url": "obs://digits/points/"}}}],
            "outputs": [{"name": "train_url", "remote": {"obs": {"obs_url": "obs://models/line/"}}}],
            "environments": {"PYTHONPATH": "/opt/packages"},
        },
        "spec": {"resource": {"flavor_id": "modelarts.vm.cpu.8u", "node_count": 2}},
    }
    if service.real_store:  # type: ignore[attr-defined]
        # An output begins empty there; a volume has what was written to it before.
        volume = {"obs": {"obs_path": "obs://models/kept/", "local_path": "/home/ma-user/kept"}}
        body["spec"]["volumes"] = [volume]
        body["algorithm"]["environments"]["CHECKPOINTS"] = "/home/ma-user/kept"
    return body


def kill(*words: str) -> None:
    """Kills the one process with these words in its command line, as the kernel does when memory is short."""
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                argv = (process / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if set(words) < set(argv):
                os.kill(int(process.name), signal.SIGKILL)
                return
    raise AssertionError(f"nobody runs {words}")


def test_a_worker_is_killed_and_the_job_goes_on_from_its_checkpoint(service: Service):
    cloud = Cloud(service)
    put(service, f"obs://programs/torch-{service.port}/train.py", TRAIN)
    put(service, "obs://digits/points/points.txt", POINTS)
    made = cloud("create_training_job", body=document(service)).metadata.id
    cloud.wait_for(made, "waits to be killed", "worker-1", 200)
    kill(f"/home/ma-user/modelarts/user-job-dir/torch-{service.port}/train.py", "--rank=1")
    ended = service.wait("torch", timeout=300)
    assert ended["state"] == "succeeded", cloud.log(made)
    status = cloud.details(made).status
    assert (status.phase, [task.exit_code for task in status.task_statuses]) == ("Completed", [0, 0])
    first, second = status.running_records
    assert (first.end_related_task, first.end_recover) == ("worker-1", "job_reschedule")
    assert (first.recover_records[0].fault_scenario, second.end_reason) == ("job_failed", "job completed")
    said = cloud.log(made)
    assert "attempt 1 begins with epoch 0" in said
    assert "attempt 2 begins with epoch 3" in said
    assert "epoch 5 loss 0.0" in said
    assert any("Training job is restarted" in message for message in cloud.events(made))
    learnt = get(service, "obs://models/line/model.txt")
    assert [round(float(number)) for number in learnt.split()] == [2, 1]


RANKS = """
from mpi4py import MPI
print("rank", MPI.COMM_WORLD.rank, "sum", MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank + 1), flush=True)
"""


def test_horovod_s_ranks_are_those_of_a_real_mpi():
    with with_frameworks() as service:
        cloud = Cloud(service)
        put(service, "obs://programs/mpi/ranks.py", RANKS)
        path = "/opt/turnout/bin:/usr/bin:/bin:/opt/venv/bin"
        body = {
            "kind": "job",
            "metadata": {"name": "mpi"},
            "algorithm": {
                "code_dir": "/programs/mpi/",
                "boot_file": "/programs/mpi/ranks.py",
                "engine": {"engine_id": HOROVOD},
                "environments": {"PATH": path, "PYTHONPATH": "/opt/packages"},
            },
            "spec": {"resource": {"flavor_id": "modelarts.vm.cpu.8u", "node_count": 3}},
        }
        made = cloud("create_training_job", body=body).metadata.id
        assert service.wait("mpi", timeout=120)["state"] == "succeeded", cloud.log(made)
        ranks = sorted(line for line in cloud.log(made).splitlines() if line.startswith("rank"))
        assert ranks == ["rank 0 sum 6", "rank 1 sum 6", "rank 2 sum 6"]
