"""Which packages stand for the runtimes of the clouds' catalogues."""

import tomllib
from importlib import resources

import pytest

from turnout.dialects.modelarts.catalogue import tables
from turnout.dialects.tia import catalogue as tia
from turnout.dialects.vertex import catalogue as vertex
from turnout.engines.local.environments.presets import Preset, find

DEBIAN = ["3.11"]
OLD_TORCH = ("torch==2.1.*", "torchvision", "numpy", "numpy<2")
MANY = ["3.8", "3.10", "3.11", "3.12"]


@pytest.mark.parametrize(
    ("name", "pythons", "packages", "python"),
    [
        # The Python that the image has, if it is installed; otherwise one that has wheels of that version.
        ("pytorch-gpu.2-4.py310", MANY, ("torch==2.4.*", "torchvision", "numpy"), "3.10"),
        ("pytorch-gpu.2-4.py310", DEBIAN, ("torch==2.4.*", "torchvision", "numpy"), ""),
        ("sklearn-cpu.1-6", DEBIAN, ("scikit-learn==1.6.*", "pandas"), ""),
        ("scikit-learn-cpu.1-0", MANY, ("scikit-learn==1.0.*", "pandas", "numpy<2"), "3.10"),
        ("tf-cpu.2-8.py37", MANY, ("tensorflow==2.8.*",), "3.10"),
        ("xgboost-cpu.1-7", DEBIAN, ("xgboost==1.7.*", "scikit-learn", "pandas", "numpy<2"), ""),
        ("pytorch_2.1.0-cuda_11.8-py_3.10-ubuntu_22.04-x86_64", MANY, OLD_TORCH, "3.10"),
        ("tensorflow_2.15.0-cuda_12.2-py_3.11-ubuntu_22.04-x86_64", DEBIAN, ("tensorflow==2.15.*",), ""),
        # No wheels of it for any Python that is installed: the newest.
        ("tia-1.7.0-gpu-py3", MANY, ("tensorflow",), ""),
        ("pytorch-cp36-1.3.0", MANY, ("torch", "torchvision", "numpy"), ""),
        ("xgboost-sklearn-python3.6", DEBIAN, ("xgboost", "scikit-learn", "pandas"), ""),
    ],
)  # fmt: skip
def test_packages(name: str, pythons: list[str], packages: tuple[str, ...], python: str):
    assert find(name, pythons, "3.11") == Preset(packages, python)


def test_with_gpus():
    assert find("tf-gpu.2-17.py310", DEBIAN, "3.11", gpus=True) == Preset(
        ("tensorflow[and-cuda]==2.17.*",), ""
    )


@pytest.mark.parametrize("name", ["", "my-runtime", "python:3", "tiaserv-1.6.0-cpu", "caffe-1.0.0-python2.7"])
def test_no_preset(name: str):
    assert find(name, MANY, "3.11") is None


def test_the_frameworks_of_all_catalogues_have_presets():
    named = [
        name for name, one in tia.runtimes().items() if one.family.master and not one.family.not_for_jobs
    ]
    named = [name for name in named if not name.startswith("tia-spark")]
    named += [
        id for id, one in tables.engines().items() if one.name in ("PyTorch", "TensorFlow", "XGBoost-Sklearn")
    ]
    images = ("tf-gpu.2-17.py310", "pytorch-xla.2-4.py310", "sklearn-cpu.1-6", "xgboost-cpu.2-1")
    for image in images:
        found = vertex.prebuilt(f"us-docker.pkg.dev/vertex-ai/training/{image}:latest")
        assert found
        named.append(found.runtime)
    assert [name for name in named if find(name, MANY, "3.11") is None] == []


def test_the_data_file_is_consistent():
    text = resources.files("turnout.engines.local.environments").joinpath("presets.toml").read_text()
    for framework, entry in tomllib.loads(text).items():
        assert all("{version}" in entry["packages"][0] for _ in entry["names"]), framework
        assert all(len(versions) == 2 for versions in entry["wheels"].values()), framework
