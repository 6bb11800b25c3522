"""Real training by custom jobs: scikit-learn from a Python package, PyTorch on three replicas."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.cloud import aiplatform, storage
from google.oauth2.credentials import Credentials

from tests.dialects.vertex.custom_jobs.test_package_command import wheel
from tests.dialects.vertex.driving import LOCATION, PROJECT, Cloud
from tests.running import KEY, ROOT, Service, reachable_directory, running
from tests.whole.test_frameworks import mounted
from turnout.access import make_token

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SKLEARN = """
import os, pickle
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

x, y = load_iris(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x, y, random_state=0)
model = RandomForestClassifier(n_estimators=20, random_state=0).fit(x_train, y_train)
print(f"accuracy {model.score(x_test, y_test):.2f}")
directory = os.environ["AIP_MODEL_DIR"].replace("gs://", "/gcs/")
os.makedirs(directory, exist_ok=True)
with open(os.path.join(directory, "model.pkl"), "wb") as file:
    pickle.dump(model, file)
"""

TORCH = """
import json, os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

spec = json.loads(os.environ["CLUSTER_SPEC"])
cluster, task = spec["cluster"], spec["task"]
everyone = [(pool, index) for pool in sorted(cluster) for index in range(len(cluster[pool]))]
rank = everyone.index((task["type"], task["index"]))
address = cluster["workerpool0"][0]
dist.init_process_group("gloo", init_method=f"tcp://{address}", rank=rank, world_size=len(everyone))
torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    x = torch.randn(64, 4)
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
weights = [torch.zeros(1, 4) for _ in everyone]
dist.all_gather(weights, model.module.weight.data)
assert all(torch.equal(weights[0], other) for other in weights), "every replica has the same model"
print(f"rank {rank} of {len(everyone)}: loss {loss.item():.4f}", flush=True)
dist.barrier()  # the others are ended with the first pool
# After a training that went well, gloo's threads sometimes abort the process while it ends.
os._exit(0)
"""


@pytest.fixture
def service() -> Iterator[Service]:
    with running() as service:
        yield service.start()


def initialise(service: Service, monkeypatch: pytest.MonkeyPatch) -> storage.Client:
    """The SDK, connected to the service, and the storage client that it uses."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", service.endpoint)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("google.cloud.aiplatform.jobs._JOB_WAIT_TIME", 0.2)
    credentials = Credentials(token=make_token(KEY, time.time()))
    aiplatform.init(
        api_endpoint=service.endpoint,
        api_transport="rest",
        project=PROJECT,
        location=LOCATION,
        staging_bucket="gs://stage",
        credentials=credentials,
    )
    return storage.Client(project=PROJECT, credentials=credentials)


def test_a_package_that_trains_with_scikit_learn(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    client = initialise(service, monkeypatch)
    bucket = client.create_bucket("training")
    # The job has no index to fetch from: what its package needs lies in the bucket too.
    subprocess.run(
        [
            "/usr/bin/python3",
            "-m",
            "pip",
            "-q",
            "download",
            "--only-binary=:all:",
            "-d",
            tmp_path,
            "scikit-learn",
        ],
        check=True,
    )
    wheel(
        tmp_path,
        "trainer",
        {"trainer/__init__.py": "", "trainer/task.py": SKLEARN},
        requires="Requires-Dist: scikit-learn\n",
    )
    for file in tmp_path.glob("*.whl"):
        bucket.blob(f"wheels/{file.name}").upload_from_filename(file)
    job = aiplatform.CustomJob(
        display_name="iris",
        worker_pool_specs=[
            {
                "machine_spec": {"machine_type": "n1-standard-4"},
                "replica_count": 1,
                "python_package_spec": {
                    "executor_image_uri": "us-docker.pkg.dev/vertex-ai/training/sklearn-cpu.1-6:latest",
                    "package_uris": ["gs://training/wheels/trainer-1-py3-none-any.whl"],
                    "python_module": "trainer.task",
                    "env": [
                        {"name": "PIP_NO_INDEX", "value": "1"},
                        {"name": "PIP_FIND_LINKS", "value": "/gcs/training/wheels"},
                    ],
                },
            }
        ],
        base_output_dir="gs://training/run",
    )
    job.run()
    cloud = Cloud(service)
    said = cloud.entries({"name": job.resource_name}, ' textPayload:"accuracy"')["entries"]
    assert float(said[0]["textPayload"].split()[1]) > 0.9
    assert bucket.blob("run/model/model.pkl").exists()


@pytest.mark.parametrize("sandbox", ["bubblewrap", "none"])
def test_three_replicas_meet_by_cluster_spec(sandbox: str, monkeypatch: pytest.MonkeyPatch):
    packages = next((ROOT / ".venv-slow/lib").glob("python3.*/site-packages"))
    with reachable_directory() as directory, mounted(packages, directory / "packages") as reachable:
        site = "/opt/torch" if sandbox == "bubblewrap" else str(reachable)
        mounts = f'mounts = {{ "/opt/torch" = "{reachable}" }}' if sandbox == "bubblewrap" else ""
        settings = f'[engines.local]\nsandbox = "{sandbox}"\n[runtimes."pytorch-gpu.2-4.py310"]\n{mounts}\n'
        with running(settings) as service:
            initialise(service.start(), monkeypatch)
            pool = {
                "machine_spec": {"machine_type": "n1-standard-4"},
                "replica_count": 1,
                "container_spec": {
                    "image_uri": "us-docker.pkg.dev/vertex-ai/training/pytorch-gpu.2-4.py310:latest",
                    "command": ["python3", "-c", TORCH],
                    "env": [{"name": "PYTHONPATH", "value": site}],
                },
            }
            job = aiplatform.CustomJob("gloo", [pool, pool | {"replica_count": 2}])
            job.run()
            said = Cloud(service).entries({"name": job.resource_name}, ' textPayload:"loss"')["entries"]
            assert sorted(one["textPayload"].partition(":")[0] for one in said) == [
                "rank 0 of 3", "rank 1 of 3", "rank 2 of 3",
            ]  # fmt: skip
