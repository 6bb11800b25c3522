"""A program on a node of a cluster reaches a bucket in a real store through the service: nodes need no way to it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateways.jobs.client import CLIENT
from tests.gateways.jobs.test_stores import table
from tests.running import ROOT, Service, python_path, running
from tests.stores import ADMIN, S3, s3

__all__ = ["s3"]

CLUSTER = "ap-shanghai"
CONFIG = f"""
[clusters.{CLUSTER}]
engine = "slurm"
python = "{sys.executable}"

[images]
"tests/anything:1" = "anything"
"""
PROGRAM = (
    CLIENT
    + """
import boto3
bearer, client = token(), boto3.client("s3")
print("written", write("far", "out", "hello", bearer)[0])
print("boto3", client.get_object(Bucket="far", Key="out", Range="bytes=1-")["Body"].read())
print("library", read("far", "out", bearer))
print("theirs", read("theirs", "out", bearer)[0])
print("secrets", [name for name, value in os.environ.items() if "secret-enough" in value])
"""
)


@pytest.fixture
def service(tmp_path: Path, s3: S3) -> Iterator[Service]:
    stores = table("far", s3.backing()) + table("theirs", s3.backing() | {"project": "other"})
    with running(CONFIG + stores, {"PYTHONPATH": f"{ROOT}:{python_path()}"}) as one:
        # The service is one whose Slurm is a fake.
        yield one.start(wrapper=(sys.executable, "-m", "tests.engines.remote.serving", str(tmp_path)))


def test_a_program_on_a_node(service: Service):
    service.create("far", sys.executable, "-c", PROGRAM, Cluster=CLUSTER)
    job = service.wait("far")
    lines = [one.Log for one in service.logs("far", CLUSTER)]
    assert job["state"] == "succeeded", "\n".join(lines)
    assert lines == ["written 200", "boto3 b'ello'", "library (200, 'hello')", "theirs 403", "secrets []"]
    assert ADMIN[1] not in service.log.read_text()
