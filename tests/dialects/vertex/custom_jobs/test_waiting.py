"""Strategies and updates as Google's client sees them, on a machine that one job fills."""

import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from google.cloud import aiplatform_v1
from google.cloud.aiplatform_v1 import JobState, Scheduling

from tests.dialects.vertex.driving import Cloud
from tests.running import running

LARGEST = "n1-standard-96"


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with running() as service:
        yield Cloud(service.start())


def create(cloud: Cloud, *command: str, **scheduling: Any) -> Any:
    """One that takes all there is."""
    pool = {
        "machine_spec": {"machine_type": LARGEST},
        "replica_count": 1,
        "container_spec": {"image_uri": "python:3.11", "command": list(command)},
    }
    spec = {"worker_pool_specs": [pool], "scheduling": scheduling}
    job = aiplatform_v1.CustomJob({"display_name": "waits", "job_spec": spec})
    return cloud.client().create_custom_job(parent=cloud.parent, custom_job=job)


def shown(cloud: Cloud, name: str) -> Any:
    return cloud.client().get_custom_job(name=name)


def cancel(cloud: Cloud, name: str) -> None:
    cloud.client().cancel_custom_job(name=name)
    cloud.wait(name)


def test_a_flexible_start_that_waits_too_long_fails_for_want_of_resources(cloud: Cloud):
    holder = create(cloud, "sleep", "1000")
    cloud.wait(holder.name, "JOB_STATE_RUNNING")
    flexible = Scheduling.Strategy.FLEX_START
    waits = create(cloud, "true", strategy=flexible, timeout="60s", max_wait_duration="1s")
    assert shown(cloud, waits.name).state == JobState.JOB_STATE_QUEUED
    cloud.wait(waits.name)
    failed = shown(cloud, waits.name)
    assert (failed.state, failed.error.code) == (JobState.JOB_STATE_FAILED, 8)
    assert "Resources are insufficient in region: us-central1" in failed.error.message
    assert not failed.start_time
    longer = create(cloud, "true", strategy=flexible, timeout="60s", max_wait_duration="600s")
    cancel(cloud, holder.name)
    assert cloud.wait(longer.name)["state"] == "JOB_STATE_SUCCEEDED"


def test_a_spot_job_makes_way_and_is_never_shown_as_cancelled(cloud: Cloud):
    slow_to_go = "trap 'sleep 0.5; exit 0' TERM; sleep 1000 & wait"
    spot = create(cloud, "sh", "-c", slow_to_go, strategy=Scheduling.Strategy.SPOT)
    cloud.wait(spot.name, "JOB_STATE_RUNNING")
    usual = create(cloud, "sleep", "0.5")
    seen: list[str] = []
    deadline = time.monotonic() + 60
    while cloud.get(usual.name)["state"] != "JOB_STATE_SUCCEEDED":
        seen.append(cloud.get(spot.name)["state"])
        assert time.monotonic() < deadline
    assert {"JOB_STATE_RUNNING", "JOB_STATE_QUEUED"} <= set(seen)
    assert "JOB_STATE_CANCELLING" not in seen
    cloud.wait(spot.name, "JOB_STATE_RUNNING")
    service = cloud.entries({"name": spot.name}, ' resource.labels.task_name="service"')["entries"]
    said = [entry["textPayload"] for entry in service]
    assert any(text.startswith("Job is preempted") for text in said)
    assert any("retry 1 of 6" in text for text in said)
    cancel(cloud, spot.name)


@pytest.mark.parametrize("deadly", [signal.SIGSEGV, signal.SIGKILL])
def test_what_crashes_is_tried_again_and_every_change_moves_the_update_time(cloud: Cloud, deadly: int):
    """SIGSEGV: the whole job, three times. SIGKILL: in its place, five times in each of four goes."""
    job = create(cloud, "sh", "-c", f"kill -{deadly} $$")
    looks = [cloud.get(job.name)]
    deadline = time.monotonic() + 60
    while looks[-1]["state"] != "JOB_STATE_FAILED":
        assert time.monotonic() < deadline
        look = cloud.get(job.name)
        if look != looks[-1]:
            looks.append(look)
    times = [look["updateTime"] for look in looks]
    assert [key(at) for at in times] == sorted({key(at) for at in times})
    assert looks[-1]["error"]["code"] == 3
    assert not any("error" in look for look in looks[:-1])
    service = cloud.entries({"name": job.name}, ' resource.labels.task_name="service"')["entries"]
    said = [entry["textPayload"] for entry in service]
    assert sum(text.startswith("Job is restarted") for text in said) == 3


def key(time: str) -> tuple[str, str]:
    """Fractions have as many digits as they need."""
    seconds, _, fraction = time.rstrip("Z").partition(".")
    return seconds, fraction.ljust(9, "0")


def test_without_retries_a_crash_is_final(cloud: Cloud):
    job = create(cloud, "sh", "-c", "kill -SEGV $$", disable_retries=True)
    assert cloud.wait(job.name)["state"] == "JOB_STATE_FAILED"
    service = cloud.entries({"name": job.name}, ' resource.labels.task_name="service"')["entries"]
    assert not any("restarted" in entry["textPayload"] for entry in service)


def test_the_time_limit(cloud: Cloud):
    job = create(cloud, "sleep", "1000", timeout="1s")
    ended = cloud.wait(job.name)
    assert (ended["state"], ended["error"]["code"]) == ("JOB_STATE_FAILED", 4)
