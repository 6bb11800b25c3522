"""`turnout cluster check` against a real Slurm."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.running import KEY, Service, python_path, running
from tests.slurm.daemons import Slurm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

CLUSTER = '[clusters.{name}]\nengine = "slurm"\npython = "/usr/bin/python3"\npartition = "{partition}"\n'


@pytest.fixture(scope="module")
def service(slurm: Slurm) -> Iterator[Service]:
    with running(env={"SLURM_CONF": slurm.environment["SLURM_CONF"]}) as one:
        clusters = [("far", "far"), ("closed", "closed"), ("unknown", "gpu")]
        text = "".join(CLUSTER.format(name=name, partition=partition) for name, partition in clusters)
        one.config.write_text(f'{text}[runner]\nurl = "http://{slurm.address}:{one.port}"\n')
        yield one.start("--host", "0.0.0.0")


def check(service: Service, cluster: str) -> tuple[int, list[dict[str, Any]]]:
    command = [sys.executable, "-m", "turnout.cli.main", "cluster", "check", cluster, "--output=json"]
    variables = {
        "PYTHONPATH": python_path(),
        "TURNOUT_ENDPOINT": service.endpoint,
        "TURNOUT_KEY": f"{KEY.id}:{KEY.secret}",
    }
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, timeout=180)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_cluster_that_works(service: Service, slurm: Slurm):
    code, results = check(service, "far")
    assert (code, [result["ok"] for result in results]) == (0, [True] * 5), results
    assert [result["what"] for result in results] == [
        "commands",
        "partition far",
        "sbatch takes a job",
        "a node runs a job",
        f"a node reaches http://{slurm.address}:{service.port}",
    ]
    assert results[3]["detail"].startswith("Python 3.")


@pytest.mark.parametrize(
    ("cluster", "detail"), [("closed", "it is not up"), ("unknown", "Slurm does not know it")]
)
def test_a_partition_that_cannot_be_used(service: Service, cluster: str, detail: str):
    code, results = check(service, cluster)
    assert code == 1
    assert [result["ok"] for result in results] == [True, False]
    assert detail in results[1]["detail"]
