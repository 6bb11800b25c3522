"""The two data files."""

import pytest

from turnout.dialects.vertex import catalogue
from turnout.dialects.vertex.wire import AcceleratorType


def test_machines():
    machines = catalogue.machine_types()
    assert len(machines) == 117
    assert (machines["n1-standard-32"].cpu, machines["n1-standard-32"].memory) == (32, 120)
    assert "n1-standard-2" not in machines
    built_in = {machine.accelerator for machine in machines.values() if machine.accelerator}
    assert built_in <= set(AcceleratorType.__members__)
    assert all(bool(machine.accelerator) == bool(machine.count) for machine in machines.values())


def test_what_can_be_put_into_machines():
    for (machine, accelerator), counts in catalogue.attachable_accelerators().items():
        assert machine in catalogue.machine_types()
        assert accelerator in AcceleratorType.__members__
        assert counts
    assert catalogue.attachable_accelerators()["n1-standard-4", "NVIDIA_TESLA_K80"] == (1, 2, 4, 8)


@pytest.mark.parametrize(
    ("image", "runtime", "wants"),
    [
        (
            "us-docker.pkg.dev/vertex-ai/training/tf-gpu.2-17.py310:latest",
            "tf-gpu.2-17.py310",
            "TensorFlow 2.17 on Python 3.10",
        ),
        ("asia-docker.pkg.dev/vertex-ai/training/pytorch-xla.1-11", "pytorch-xla.1-11", "PyTorch 1.11"),
        ("gcr.io/cloud-aiplatform/training/scikit-learn-cpu.0-23:latest", "scikit-learn-cpu.0-23", "scikit-learn 0.23"),
        ("europe-docker.pkg.dev/vertex-ai/training/xgboost-cpu.1-1:latest", "xgboost-cpu.1-1", "XGBoost 1.1"),
    ],
)  # fmt: skip
def test_googles_images(image: str, runtime: str, wants: str):
    assert catalogue.prebuilt(image) == (runtime, wants)


@pytest.mark.parametrize(
    "image",
    [
        "python:3.11",
        "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest",
        "us-docker.pkg.dev/vertex-ai/prediction/tf2-cpu.2-3:latest",
        "us-docker.pkg.dev/vertex-ai/training/caffe-cpu.1-0:latest",
        "us-docker.pkg.dev/me/training/tf-cpu.2-17:latest",
    ],
)
def test_other_images(image: str):
    assert catalogue.prebuilt(image) is None
