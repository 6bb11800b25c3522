"""Real distributed training that uses only the environment variables of its replicas."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.running import ROOT, Service, reachable_directory, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TORCH = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    x = torch.randn(64, 4)
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
weights = [torch.zeros(1, 4) for _ in range(size)]
dist.all_gather(weights, model.module.weight.data)
assert all(torch.equal(weights[0], other) for other in weights), "every replica has the same model"
print(f"rank {rank} of {size}: loss {loss.item():.4f}", flush=True)
dist.barrier()
# After a training that went well, gloo's threads sometimes abort the process while it ends.
os._exit(0)
"""

TENSORFLOW = """
import json, os
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id,
                         protocol="grpc", start=True).join()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weight = tf.Variable(0.0)
@tf.function
def step():
    def replica():
        weight.assign_add(0.5)
        return weight.read_value()
    return strategy.run(replica)
for _ in range(10):
    coordinator.schedule(step)
coordinator.join()
print("weight", weight.numpy(), flush=True)
os._exit(0)
"""


@contextmanager
def with_frameworks(sandbox: str, more: str = "") -> Iterator[Service]:
    """A service whose runtime tia-1.7.0 has the packages of the slow environment, on the host's interpreter.

    `more`: further settings.
    """
    packages = next((ROOT / ".venv-slow/lib").glob("python3.*/site-packages"))
    with reachable_directory() as directory, mounted(packages, directory / "packages") as reachable:
        site = "/opt/packages" if sandbox == "bubblewrap" else str(reachable)
        mounts = f'mounts = {{ "/opt/packages" = "{reachable}" }}' if sandbox == "bubblewrap" else ""
        settings = f'[engines.local]\nsandbox = "{sandbox}"\n[runtimes."tia-1.7.0"]\n{mounts}\n{more}'
        with running(settings) as service:
            service.site = site  # type: ignore[attr-defined]
            yield service.start()


@contextmanager
def mounted(source: Path, target: Path) -> Iterator[Path]:
    """A copy that every user can reach: as root, the checkout may be in a closed directory.

    Read-only: if a test is killed, the mount stays, and whoever removes its directory must not empty the source.
    """
    if os.geteuid() != 0:
        yield source
        return
    target.mkdir()
    subprocess.run(["mount", "--bind", "--options", "ro", source, target], check=True)
    try:
        yield target
    finally:
        subprocess.run(["umount", "--lazy", target], check=True)


@pytest.fixture(params=["bubblewrap", "none"], scope="module")
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    with with_frameworks(request.param) as one:
        yield one


def train(service: Service, name: str, program: str, **roles: object) -> list[str]:
    code = f"import sys; sys.path.insert(0, {service.site!r})\n{program}"  # type: ignore[attr-defined]
    service.create(name, "python", "-c", code, ScaleTier="CUSTOM", **roles)
    job = service.wait(name, timeout=300)
    lines = [log.Log for log in service.logs(name)]
    assert job["state"] == "succeeded", "\n".join([job["message"], *lines])
    return lines


def test_torch_trains_on_three_replicas(service: Service) -> None:
    lines = train(service, "torch", TORCH, WorkerCount=2)
    ranks = sorted(line.split(":")[0] for line in lines if line.startswith("rank "))
    assert ranks == ["rank 0 of 3", "rank 1 of 3", "rank 2 of 3"]


def test_tensorflow_trains_with_a_parameter_server(service: Service) -> None:
    lines = train(service, "tensorflow", TENSORFLOW, WorkerCount=2, ParameterServerCount=1)
    assert "weight 5.0" in lines
