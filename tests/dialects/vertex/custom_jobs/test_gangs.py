"""Translated jobs of several pools on a real engine: what the replicas are told of each other, and that it is true."""

import json
import os
import re
import signal
import socket
from typing import Any

import pytest

from tests.dialects.vertex.custom_jobs.test_running import Site, place, site
from tests.dialects.vertex.jobs import MAPPED, Document, container, job, translated
from turnout.job import Attempt, Cause, Ended, Launch, ReplicaName, Started

__all__ = ["place", "site"]

TELL = """
import json, os, socket
told = {name: os.environ.get(name) for name in
        ("CLUSTER_SPEC", "TF_CONFIG", "RANK", "WORLD_SIZE", "MASTER_ADDR", "HOSTNAME", "CLOUD_ML_JOB_ID", "WHO")}
told["reached"] = socket.gethostbyname(os.environ["MASTER_ADDR"]) if told["MASTER_ADDR"] else None
told["own"] = socket.gethostname()
print(json.dumps(told))
"""
WHO = [{"name": "WHO", "value": "$(RANK) of $(WORLD_SIZE) in $(CLOUD_ML_JOB_ID)"}]


def telling(count: int = 1) -> Document:
    return container(command=["python3", "-c", TELL], env=WHO) | {"replicaCount": count}


async def told(site: Site, document: Document, *names: str) -> list[dict[str, Any]]:
    launch = launched(site, document)
    await site.engine.start(launch)
    found: list[dict[str, Any]] = []
    for name in map(ReplicaName.parse, names):
        end = await site.ended(launch.attempt, name)
        assert (end.cause, end.code) == (Cause.EXIT, 0), site.output(launch.attempt, name, stream=1)
        found.append(json.loads(site.output(launch.attempt, name)))
    return found


def launched(site: Site, document: Document) -> Launch:
    new = translated(document, MAPPED)
    site._jobs += 1
    return Launch(Attempt(site._jobs, 1), new.project, new.dialect, new.name, new.spec)


async def test_every_pool_knows_its_part(site: Site):
    document = job(telling(), telling(2), telling(), telling())
    names = ("workerpool0-0", "workerpool1-0", "workerpool1-1", "workerpool2-0", "workerpool3-0")
    lead, _, worker, ps, evaluator = await told(site, document, *names)
    assert [one["RANK"] for one in (lead, worker, ps, evaluator)] == ["0", "2", "3", "4"]
    assert worker["WHO"] == f"2 of 5 in {worker['CLOUD_ML_JOB_ID']}"
    spec = json.loads(worker["CLUSTER_SPEC"])
    assert {name: len(hosts) for name, hosts in spec["cluster"].items()} == {
        "workerpool0": 1,
        "workerpool1": 2,
        "workerpool2": 1,
        "workerpool3": 1,
    }
    assert (spec["task"], spec["environment"]) == ({"type": "workerpool1", "index": 1}, "cloud")
    assert len(spec["job"]["workerPoolSpecs"]) == 4
    config = json.loads(evaluator["TF_CONFIG"])
    assert (list(config["cluster"]), config["task"]["type"]) == (["chief", "worker", "ps"], "evaluator")
    assert re.fullmatch("cmle-training-workerpool1-[0-9a-f]{10}-1", worker["HOSTNAME"])
    if site.sandbox == "bubblewrap":
        assert worker["own"] == worker["HOSTNAME"]
        assert (
            worker["MASTER_ADDR"] == lead["HOSTNAME"] == spec["cluster"]["workerpool0"][0].partition(":")[0]
        )
    assert worker["reached"].startswith("127.")
    assert worker["reached"] != socket.gethostbyname("localhost")


async def test_one_alone_has_no_rank(site: Site):
    (lead,) = await told(site, job(telling()), "workerpool0-0")
    assert (lead["TF_CONFIG"], lead["RANK"], lead["MASTER_ADDR"]) == (None, None, None)
    assert list(json.loads(lead["CLUSTER_SPEC"])["cluster"]) == ["workerpool0"]
    assert lead["WHO"] == f"$(RANK) of $(WORLD_SIZE) in {lead['CLOUD_ML_JOB_ID']}"


async def test_a_worker_that_was_killed_is_told_the_same_again(site: Site):
    said = "(os.environ['HOSTNAME'] + os.environ['CLUSTER_SPEC'] + chr(10)).encode()"
    script = f"import os, time; os.write(1, {said}); time.sleep(1000)"
    asleep = container(command=["python3", "-c", script])
    launch, worker = launched(site, job(asleep, asleep)), ReplicaName("workerpool1", 0)
    await site.engine.start(launch)
    await site.wait_for_output(launch.attempt, "cmle", worker)
    os.kill((await site.started(launch.attempt, worker)).pid, signal.SIGKILL)
    await site.ended(launch.attempt, worker)
    await site.engine.restart(launch, worker, 1)
    await site.wait(lambda report: isinstance(report, Started) and report.restarts == 1)
    said = await site.wait_for_output(launch.attempt, "\ncmle", worker)
    first, second = said.splitlines()
    assert first == second
    await site.engine.stop(launch.attempt, 0)
    await site.wait(lambda report: isinstance(report, Ended) and report.restarts == 1)


@pytest.mark.parametrize("code", [134, 139])
async def test_crashes_as_a_shell_passes_them_on(site: Site, code: int):
    """Where there is a sandbox they look like the signal itself."""
    end = await site.go(job(container(command=["sh", "-c", f"exit {code}"])))
    assert end.shell_code == code
