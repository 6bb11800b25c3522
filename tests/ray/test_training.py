"""Real training on a real Ray, with the frameworks of the slow environment and the clouds' own clients."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.dialects.modelarts.driving import Cloud as Huawei
from tests.dialects.modelarts.driving import get
from tests.dialects.vertex.driving import Cloud as Google
from tests.dialects.vertex.tuning.test_sdk import created
from tests.ray.daemons import Ray
from tests.running import Service, running
from tests.slurm.test_training import ENGINE, LEARN, POINTS, PYTHON, SECONDS, TORCH, loss_after
from tests.whole.test_frameworks import TENSORFLOW

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CLUSTER = "ap-shanghai"
CONFIG = f"""
[clusters.{CLUSTER}]
engine = "ray"
address = "{{ray.address}}"
python = "{{ray.python}}"

[clusters.apart]
engine = "ray"
address = "{{ray.address}}"
python = "{{ray.python}}"
spread = true

[pools.pool-ray]
cluster = "apart"

[images]
"team/tune:1" = "tune"

[runtimes."{ENGINE}"]
python = "{PYTHON}"
[runtimes."tia-1.7.0"]
python = "{PYTHON}"
[runtimes.tune]
python = "{PYTHON}"
"""


@pytest.fixture(scope="module")
def service(ray: Ray) -> Iterator[Service]:
    with running(config=CONFIG.format(ray=ray)) as one:
        yield one.start()


def test_torch_trains_on_two_nodes(service: Service, ray: Ray):
    service.put("obs://programs/torch/train.py", TORCH)
    service.put("obs://digits/points/points.txt", POINTS)
    huawei = Huawei(service)
    sizes = {"cpu_core_num": 1, "mem_size": 4, "accelerator_num": 0}
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
        "spec": {
            "resource": {"pool_id": "pool-ray", "node_count": 2, "main_container_customized_flavor": sizes}
        },
    }
    made = huawei("create_training_job", body=body).metadata.id
    job = service.wait("torch", timeout=SECONDS)
    said = [huawei.log(made, f"worker-{rank}") for rank in range(2)]
    assert job["state"] == "succeeded", "\n".join([job["message"], *said])
    for rank in range(2):
        assert f"rank {rank} of 2, tcp://" in said[rank]
        assert f"rank {rank}: loss 0.00" in said[rank]
    assert {replica["address"] for replica in job["replicas"]} == set(ray.workers)
    assert get(service, "obs://models/line/model.txt") == "2.00 1.00"
    assert (service.data / "buckets/models/line/checkpoint.pt").stat().st_size > 500


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
    learn = LEARN.rpartition("print(")[0]
    pool = {
        "machine_spec": {"machine_type": "n1-standard-4"},
        "replica_count": 1,
        "container_spec": {"image_uri": "team/tune:1", "command": ["python", "-c", learn]},
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
    for trial in trials:
        assert len(trial.measurements) == 5
        (metric,) = trial.final_measurement.metrics
        rate: Any = trial.parameters[0].value
        assert metric.value == pytest.approx(loss_after(5, rate))
