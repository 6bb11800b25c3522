"""A job that exceeds its disk limit: what each API reports, also after a kill of the service."""

import re
from collections.abc import Iterator

import pytest

from tests.dialects.modelarts import driving as modelarts
from tests.dialects.vertex import driving as vertex
from tests.running import Service, running

USED = r"used [0-9.]+ MB of 16 MB"
WRITE = "head -c 30000000 /dev/urandom > $HOME/a; sleep 1000"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running("[limits]\ndisk = 16777216\n") as one:
        yield one.start()


def test_tia(service: Service):
    service.create("disk-tia", "sh", "-c", WRITE)
    job = service.wait("disk-tia")
    assert (job["state"], job["reason"]) == ("failed", "disk limit")
    shown = service.describe("disk-tia")
    assert shown.State == "Failed"
    told = f"master-0 ran into its disk limit: {USED}"
    assert re.fullmatch(rf"\[MASTER/Failed : Failed/1\] ;{told}", shown.Message)
    assert re.search(told, " ".join(service.explain("disk-tia")["why"]))


def test_vertex(service: Service):
    cloud = vertex.Cloud(service)
    job = cloud.wait(cloud.shell(WRITE)["name"])
    assert (job["state"], job["error"]["code"]) == ("JOB_STATE_FAILED", 8)
    told = rf"The replica workerpool0-0 ran into its disk limit: {USED}\."
    assert re.match(told, job["error"]["message"])


def test_modelarts(service: Service):
    cloud = modelarts.Cloud(service)
    made = cloud.create("disk-modelarts", WRITE)
    service.wait("disk-modelarts")
    status = cloud.details(made.metadata.id).status
    assert status.phase == "Failed"
    assert re.fullmatch(f"ran into its disk limit: {USED}", status.task_statuses[0].message)
    assert any(re.search(USED, event) for event in cloud.events(made.metadata.id))


def test_a_job_below_its_limit_succeeds_and_a_restarted_service_reports_one_above(service: Service):
    service.create("disk-below", "sh", "-c", "head -c 9000000 /dev/urandom > $HOME/a; sleep 3")
    service.create("disk-above", "sh", "-c", f"sleep 0.5; {WRITE}")
    service.wait("disk-above", "started")
    service.kill()
    service.start()
    assert service.wait("disk-above")["reason"] == "disk limit"
    assert service.wait("disk-below")["state"] == "succeeded"
