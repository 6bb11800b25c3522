"""PyTorch in an image trains two replicas by each API. Only the image has it: this machine's, in a layer."""

import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tencentcloud.tia.v20180226 import models

from tests.dialects.modelarts.conftest import sdk_home as sdk_home
from tests.dialects.modelarts.driving import Cloud as ModelArts
from tests.dialects.vertex.driving import Cloud as Vertex
from tests.engines.image_layers import add_libraries, make_base, make_python
from tests.images.oci import Layout
from tests.running import ROOT, Service, reachable_directory, running
from tests.whole.test_frameworks import TORCH

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

IMAGE, RUNTIME = "tests/torch:1", "tia-1.7.0"
PACKAGES = (
    "torch", "torchgen", "functorch", "numpy", "numpy.libs", "sympy", "mpmath", "networkx", "jinja2", "markupsafe",
    "fsspec", "filelock", "typing_extensions.py", "setuptools", "nvidia", "triton",
)  # fmt: skip
"""The last two exist with a build of PyTorch for CUDA only, which does not load without them."""
LEFT_OUT = shutil.ignore_patterns("test", "tests", "include", "__pycache__", "*.a", "protoc*")
TRAIN = ["python3", "-c", TORCH]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with reachable_directory() as directory:
        source = make_image(directory).source()
        settings = f'[images]\n"{IMAGE}" = "{source}"\n[runtimes."{RUNTIME}"]\nimage = "{source}"\n'
        with running(settings) as one:
            yield one.start()


def make_image(directory: Path) -> Layout:
    """A layer with a Python, and one with the packages."""
    python = ROOT / ".venv-slow/bin/python"
    installed = next((ROOT / ".venv-slow/lib").glob("python3.*/site-packages"))
    base, packages = directory / "base", directory / "packages"
    make_base(base)
    make_python(base, str(python))
    site = packages / "usr/lib" / installed.parent.name / "site-packages"
    site.mkdir(parents=True)
    for name in PACKAGES:
        source = installed / name
        if source.is_dir():
            shutil.copytree(source, site / name, ignore=LEFT_OUT, copy_function=link_or_copy)
        elif source.exists():
            shutil.copy(source, site)
    add_libraries(base, sorted((site / "torch").rglob("*.so*")))
    archives: list[Path] = []
    for layer in (base, packages):
        archives.append(layer.with_suffix(".tar"))
        with tarfile.open(archives[-1], "w") as tar:
            tar.add(layer, ".")
        shutil.rmtree(layer)
    return Layout(directory / "image").image_of(*archives, Env=["PATH=/usr/bin:/bin"])


def link_or_copy(source: str, target: str) -> None:
    try:
        Path(target).hardlink_to(source)
    except OSError:
        shutil.copy2(source, target)


def ranks(lines: list[str]) -> list[str]:
    return sorted(line.partition(":")[0] for line in lines if line.startswith("rank "))


BOTH = ["rank 0 of 2", "rank 1 of 2"]


def test_vertex(service: Service):
    cloud = Vertex(service)
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": "1",
        "containerSpec": {"imageUri": IMAGE, "command": TRAIN},
    }
    made = cloud.create(pool, pool, displayName="torch-vertex")
    job = service.wait("torch-vertex", timeout=600)
    lines = [entry["textPayload"] for entry in cloud.entries(made)["entries"]]
    assert job["state"] == "succeeded", (job["message"], lines)
    assert ranks(lines) == BOTH


def test_modelarts(service: Service):
    cloud = ModelArts(service)
    algorithm = {"engine": {"image_url": IMAGE}, "command": "python3 - <<'END'\n" + TORCH + "END"}
    resource = {"flavor_id": "modelarts.vm.cpu.8u", "node_count": 2}
    made = cloud.create("torch-modelarts", algorithm=algorithm, spec={"resource": resource}).metadata.id
    job = service.wait("torch-modelarts", timeout=600)
    lines = [line for number in range(2) for line in cloud.log(made, f"worker-{number}").splitlines()]
    assert job["state"] == "succeeded", (job["message"], lines)
    assert ranks(lines) == BOTH


def test_tia(service: Service):
    fields: dict[str, Any] = {
        "Name": "torch-tia", "Cluster": "ap-beijing", "RuntimeVersion": RUNTIME, "Command": TRAIN,
        "ScaleTier": "CUSTOM", "WorkerCount": 1,
    }  # fmt: skip
    request = models.CreateJobRequest()
    request.from_json_string(json.dumps(fields))
    service.sdk().CreateJob(request)
    job = service.wait("torch-tia", timeout=600)
    lines = [line.Log for line in service.logs("torch-tia")]
    assert job["state"] == "succeeded", (job["message"], lines)
    assert ranks(lines) == BOTH
