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
from tests.slurm.harness import Bench

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

CLUSTER = '[clusters.{name}]\nengine = "slurm"\npython = "/usr/bin/python3"\npartition = "{partition}"\n'


@pytest.fixture(scope="module")
def service(slurm: Slurm) -> Iterator[Service]:
    with running(env={"SLURM_CONF": slurm.environment["SLURM_CONF"]}) as one:
        clusters = [("far", "far"), ("closed", "closed"), ("unknown", "gpu")]
        text = "".join(CLUSTER.format(name=name, partition=partition) for name, partition in clusters)
        one.config.write_text(f'{text}[runner]\nurl = "http://{slurm.address}:{one.port}"\n')
        yield one.start("--host", "0.0.0.0")


def turnout(service: Service, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {
        "PYTHONPATH": python_path(),
        "TURNOUT_ENDPOINT": service.endpoint,
        "TURNOUT_KEY": f"{KEY.id}:{KEY.secret}",
    }
    command = [sys.executable, "-m", "turnout.cli.main", *arguments]
    return subprocess.run(
        command, env=os.environ | variables | environment, capture_output=True, text=True, timeout=180
    )


def check(service: Service, cluster: str) -> tuple[int, list[dict[str, Any]]]:
    done = turnout(service, "cluster", "check", cluster, "--output=json")
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


def test_the_doctor_checks_the_clusters_of_a_service_that_runs(service: Service, slurm: Slurm):
    environment = slurm.environment | {"PATH": os.environ["PATH"]}
    done = turnout(service, "doctor", f"--config={service.config}", "--output=json", **environment)
    findings = json.loads(done.stdout)
    far, closed = findings["cluster far"], findings["cluster closed"]
    reached = f"a node runs a job, a node reaches http://{slurm.address}:{service.port}"
    checked = f"checked by the service: commands, partition far, sbatch takes a job, {reached}"
    assert (far["status"], far["found"]) == ("ok", f"slurm, partition far; {checked}")
    assert closed["status"] == "warn"
    assert "partition closed: it is not up" in closed["found"]


@pytest.mark.parametrize(
    ("cluster", "detail"), [("closed", "it is not up"), ("unknown", "Slurm does not know it")]
)
def test_a_partition_that_cannot_be_used(service: Service, cluster: str, detail: str):
    code, results = check(service, cluster)
    assert code == 1
    assert [result["ok"] for result in results] == [True, False]
    assert detail in results[1]["detail"]


# The cluster alone, with a stand-in for the service.


async def test_the_check_of_a_cluster_that_works(lab: Bench):
    results = [result async for result in lab.cluster.check(lab.gang().runner)]
    assert [result.what for result in results] == [
        "commands",
        "default partition main",
        "sbatch takes a job",
        "a node runs a job",
        f"a node reaches {lab.endpoint}",
    ]
    assert all(result.ok for result in results), results
    assert "sbatch, squeue, scancel, scontrol, sinfo on this machine: slurm-wlm 22.05" in results[0].detail
    assert results[3].detail.startswith("Python 3.")


@pytest.mark.parametrize(
    ("settings", "what", "detail"),
    [
        ({"command": ("sh", "-c", "exit 255", "ssh")}, "commands", "sbatch --version: exit code 255"),
        ({"partition": "nowhere"}, "partition nowhere", "Slurm does not know it"),
        ({"partition": "closed"}, "partition closed", "it is not up"),
        (
            {"constraint": "fast"},
            "sbatch takes a job",
            "Invalid feature specification with --constraint=fast",
        ),
        ({"python": "/opt/python9"}, "a node runs a job", "/opt/python9: not found"),
    ],
)
async def test_the_check_says_what_is_wrong(lab: Bench, settings: dict[str, object], what: str, detail: str):
    wrong = lab.with_settings(**settings)
    last = [result async for result in wrong.cluster.check(wrong.gang().runner)][-1]
    assert (last.what, last.ok) == (what, False)
    assert detail in last.detail


async def test_the_check_says_that_nodes_do_not_reach_the_service(lab: Bench):
    closed = lab.gang().runner._replace(endpoint=f"http://{lab.slurm.address}:9")
    last = [result async for result in lab.cluster.check(closed)][-1]
    assert (last.what, last.ok) == (f"a node reaches http://{lab.slurm.address}:9", False)
    assert "Connection refused" in last.detail
    assert last.detail.endswith("; set [runner] url to an address of this service that nodes reach")
