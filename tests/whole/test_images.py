"""Jobs in images through each API, in a service whose settings name images on this machine."""

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tencentcloud.tia.v20180226 import models

from tests.dialects.modelarts.conftest import sdk_home as sdk_home
from tests.dialects.modelarts.driving import Cloud as ModelArts
from tests.dialects.vertex.driving import Cloud as Vertex
from tests.engines.image_layers import make_base, make_python
from tests.images.oci import Layout
from tests.running import Service, reachable_directory, running

VERTEX, MODELARTS, TIA = "gcr.io/tests/trainer:1", "swr.example.com/team/trainer:1", "tia-1.7.0"


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with reachable_directory() as directory:
        root = directory / "root"
        make_base(root)
        make_python(root)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            tar.add(root, ".")
        environment = ["PATH=/usr/bin:/bin", "OF=image"]
        Layout(directory / "image").image(
            packed.getvalue(),
            Entrypoint=["/bin/sh", "-c", 'echo entry point: $0 "$@"; pwd; id -u; echo $OF'],
            Cmd=["default"],
            Env=environment,
            User="trainer",
            WorkingDir="/app",
        )
        yield directory / "image"


@pytest.fixture(scope="module", params=["sandbox", pytest.param("podman", marks=pytest.mark.slow)])
def service(layout: Path, request: pytest.FixtureRequest) -> Iterator[Service]:
    source = f"oci:{layout}:latest"
    settings = f"""
[engines.local]
containers = "{request.param}"
[images]
"gcr.io/tests/*" = "{source}"
"swr.example.com/team/trainer" = "{source}"
[runtimes."{TIA}"]
image = "{source}"
"""
    with running(settings) as one:
        yield one.start()


@pytest.fixture(scope="module")
def vertex(service: Service) -> Vertex:
    return Vertex(service)


@pytest.mark.parametrize(
    ("fields", "printed"),
    [
        ({}, ["entry point: default", "/app", "1234", "image"]),
        ({"args": ["a", "b"]}, ["entry point: a b", "/app", "1234", "image"]),
        ({"command": ["sh", "-c", "echo $OF $HOME $MINE"], "env": [{"name": "MINE", "value": "$(OF)"}]},
         ["image /home/trainer $(OF)"]),
        ({"command": ["python3", "-c"], "args": ["import sys; print(sys.prefix)"]}, ["/usr"]),
    ],
)  # fmt: skip
def test_vertex(vertex: Vertex, fields: dict[str, Any], printed: list[str]):
    container = {"imageUri": VERTEX} | fields
    made = vertex.create({"machineSpec": {"machineType": "n1-standard-4"}, "containerSpec": container})
    assert vertex.wait(made["name"])["state"] == "JOB_STATE_SUCCEEDED"
    entries = vertex.entries(made, ' resource.labels.task_name="workerpool0-0"')["entries"]
    texts = [entry["textPayload"] for entry in entries]
    # The service's own entry may come before lines that were printed within the last millisecond.
    assert [text for text in texts if not text.startswith("Task completed.")] == printed


def test_modelarts(service: Service):
    """A custom image with a command: the entry point is replaced, and the user is 1000."""
    cloud = ModelArts(service)
    algorithm = {"engine": {"image_url": MODELARTS}, "command": "id -u; echo $OF; python3 -c 'print(7)'"}
    made = cloud.create("in-image", algorithm=algorithm)
    cloud.wait_for(made.metadata.id, "\n7")
    lines = cloud.log(made.metadata.id).splitlines()
    assert [line for line in lines if "Service Log" not in line] == ["1000", "image", "7"]


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ({"Command": ["sh", "-c", "echo $OF; pwd"]}, ["image", "/app"]),
        ({"Args": ["a"]}, ["entry point: a", "/app", "1234", "image"]),
    ],
)
def test_tia_runs_a_runtime_that_is_an_image(service: Service, words: dict[str, Any], printed: list[str]):
    name = f"in-image-{len(printed)}"
    fields: dict[str, Any] = {"Name": name, "Cluster": "ap-beijing", "RuntimeVersion": TIA} | words
    request = models.CreateJobRequest()
    request.from_json_string(json.dumps(fields))
    service.sdk().CreateJob(request)
    assert service.wait(name)["state"] == "succeeded"
    assert [line.Log for line in service.logs(name)] == printed
