"""Retries, preemption, time limits and priorities, and how answers show them."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.modelarts.driving import Cloud, refused
from tests.running import Service, python_path, running

CONFIG = """
[engines.local]
gpus = 1

[limits]
hang_seconds = 1.5
sample_seconds = 0.5

[images]
"tests/anything:1" = "anything"
"""
SHORT_HOURS = "import turnout.dialects.modelarts.jobs.run_options as running; running.HOUR = 1\n"
CARD = {"flavor_id": "modelarts.p3.large.public", "node_count": 1}
EVERYTHING = [
    "JobStarted",
    "JobCompleted",
    "JobFailed",
    "JobTerminated",
    "JobRestarted",
    "JobHanged",
    "JobPreempted",
]
NOTIFICATION = {"topic_urn": "urn:smn:here", "events": EVERYTHING}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One in which an hour is a second."""
    place = tmp_path_factory.mktemp("hours")
    (place / "sitecustomize.py").write_text(SHORT_HOURS)
    with running(CONFIG, {"PYTHONPATH": f"{place}{os.pathsep}{python_path()}"}) as one:
        yield one.start()


@pytest.fixture(scope="module")
def cloud(service: Service) -> Cloud:
    return Cloud(service)


def annotated(**rules: str) -> dict[str, Any]:
    names = {f"fault-tolerance/{name.replace('_', '-')}": value for name, value in rules.items()}
    return {"annotations": names}


def with_card(**policy: Any) -> dict[str, Any]:
    return {"resource": CARD, "schedule_policy": policy, "notification": NOTIFICATION}


def notified(events: list[str]) -> list[str]:
    return [message.split()[1] for message in events if message.startswith("Notification ")]


def test_who_is_killed_starts_over_as_often_as_was_said(service: Service, cloud: Cloud):
    made = cloud.create("killed", "kill -9 $$", metadata=annotated(job_retry_num="2")).metadata.id
    assert service.wait("killed")["state"] == "failed"
    status = cloud.details(made).status
    assert (status.phase, status.task_statuses[0].exit_code) == ("Failed", 137)
    assert len(status.running_records) == 3
    for record in status.running_records:
        assert (record.start_type, record.end_related_task) == ("init_or_rescheduled", "worker-0")
        assert "SIGKILL" in record.end_reason
    assert [bool(record.recover_records) for record in status.running_records] == [True, True, False]
    recovered = status.running_records[0].recover_records[0]
    assert (recovered.fault_scenario, recovered.recover_result) == ("job_failed", "success")
    assert [recovered.recover, recovered.related_task] == ["job_reschedule", "worker-0"]
    assert sum("Training job is restarted" in message for message in cloud.events(made)) == 2


def test_a_program_that_fails_by_itself_is_no_fault_of_the_platform(service: Service, cloud: Cloud):
    made = cloud.create("by-itself", "exit 3", metadata=annotated(job_retry_num="3")).metadata.id
    assert service.wait("by-itself")["state"] == "failed"
    status = cloud.details(made).status
    assert (len(status.running_records), status.task_statuses[0].exit_code) == (1, 3)


def test_unconditionally(service: Service, cloud: Cloud):
    rules = annotated(job_unconditional_retry="true")
    made = cloud.create("whatever", "exit 3", metadata=rules).metadata.id
    assert service.wait("whatever")["state"] == "failed"
    assert len(cloud.details(made).status.running_records) == 4


def test_who_hangs_is_started_over(service: Service, cloud: Cloud):
    program = 'echo attempt $MA_SCHEDULE_CNT; [ "$MA_SCHEDULE_CNT" -gt 1 ] || sleep 600'
    rules = annotated(hang_retry="true")
    spec = {"notification": NOTIFICATION}
    made = cloud.create("hangs", program, metadata=rules, spec=spec).metadata.id
    assert service.wait("hangs")["state"] == "succeeded"
    first, second = cloud.details(made).status.running_records
    assert first.recover_records[0].fault_scenario == "job_hanged"
    assert second.end_reason == "job completed"
    events = cloud.events(made)
    suspended = [number for number, message in enumerate(events) if "may be suspended" in message]
    restarted = [number for number, message in enumerate(events) if "is restarted" in message]
    assert len(suspended) == len(restarted) == 1
    assert suspended < restarted
    assert notified(events) == ["JobStarted", "JobHanged", "JobRestarted", "JobStarted", "JobCompleted"]


def test_a_job_gives_way_to_one_of_higher_priority(service: Service, cloud: Cloud):
    program = 'echo attempt $MA_SCHEDULE_CNT; [ "$MA_SCHEDULE_CNT" -gt 1 ] || sleep 600'
    low = cloud.create("low", program, spec=with_card(priority=1, preemptible=True)).metadata.id
    cloud.wait_for(low, "attempt 1")
    high = cloud.create("high", "true", spec=with_card(priority=3)).metadata.id
    assert service.wait("high")["state"] == service.wait("low")["state"] == "succeeded"
    status = cloud.details(low).status
    again = [at for at, nodes in status.node_count_metrics if nodes][1]
    assert status.start_time < cloud.details(high).status.start_time < again
    first, second = status.running_records
    assert "priority 3" in first.end_reason
    assert second.end_reason == "job completed"
    assert notified(cloud.events(low)) == ["JobStarted", "JobPreempted", "JobStarted", "JobCompleted"]


def test_a_job_that_is_not_preemptible_is_never_preempted(service: Service, cloud: Cloud):
    """And those that wait come in the order of their priorities, also of those that were changed."""
    holder = cloud.create("holder", "sleep 600", spec=with_card(priority=1)).metadata.id
    cloud.wait_for(holder, "start:")
    waiting = {
        name: cloud.create(name, "true", spec=with_card(priority=priority)).metadata.id
        for name, priority in (("first", 2), ("second", 3), ("third", 1))
    }
    assert {cloud.details(one).status.phase for one in waiting.values()} == {"Pending"}
    body = {"spec": {"schedule_policy": {"priority": 3}}}
    cloud("change_training_job_description", training_job_id=waiting["third"], body=body)
    assert cloud.details(waiting["third"]).spec.schedule_policy.priority == 3
    stopped = cloud("stop_training_job", training_job_id=holder, body={"action_type": "terminate"})
    assert stopped.status.phase == "Terminating"
    for name in waiting:
        service.wait(name)
    began = {name: service.native(f"/jobs/{name}")["started"] for name in waiting}
    assert sorted(began, key=began.__getitem__) == ["second", "third", "first"]


def test_auto_stop(service: Service, cloud: Cloud):
    hours = {"auto_stop": {"time_unit": "HOURS", "duration": 2}, "notification": NOTIFICATION}
    made = cloud.create("long", "sleep 600", spec=hours).metadata.id
    service.wait("long")
    status = cloud.details(made).status
    assert status.phase == "Terminated"
    assert 2000 <= status.duration < 20000
    events = cloud.events(made)
    assert events[-2] == "Training job was stopped automatically. (Maximum running duration: 2 hours)"
    assert notified(events) == ["JobStarted", "JobTerminated"]
    with refused("ModelArts.2796", 409):
        cloud("stop_training_job", training_job_id=made, body={"action_type": "terminate"})


def test_time_in_the_queue_does_not_count(service: Service, cloud: Cloud):
    holder = cloud.create("holds", "sleep 3", spec=with_card()).metadata.id
    cloud.wait_for(holder, "start:")
    hours = {"auto_stop": {"time_unit": "HOURS", "duration": 2}}
    made = cloud.create("queued", "true", spec=with_card() | hours).metadata.id
    assert service.wait("queued")["state"] == "succeeded"
    assert cloud.details(made).status.phase == "Completed"


def test_terminate_ends_all_processes(service: Service, cloud: Cloud):
    program = "(trap '' TERM; sleep 977.25) & setsid sleep 977.25 & echo up; sleep 977.25"
    made = cloud.create("tree", program, metadata=annotated(job_unconditional_retry="true")).metadata.id
    cloud.wait_for(made, "up")
    deadline = time.monotonic() + 60
    while len(sleepers("977.25")) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(sleepers("977.25")) == 3
    cloud("stop_training_job", training_job_id=made, body={"action_type": "terminate"})
    service.wait("tree")
    shown = cloud.details(made).status
    assert (shown.phase, len(shown.running_records)) == ("Terminated", 1)
    assert not sleepers("977.25")


def sleepers(seconds: str) -> list[int]:
    found: list[int] = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdecimal() and seconds.encode() in (process / "cmdline").read_bytes().split(
                b"\0"
            ):
                found.append(int(process.name))
        except OSError:
            continue
    return found


def test_a_job_is_stopped_while_it_is_about_to_start_over(service: Service, cloud: Cloud):
    """One member was killed, another takes its time to end: meanwhile the job runs, and can be stopped."""
    program = """trap 'sleep 3; exit' TERM; echo up
        [ "$VC_TASK_INDEX" = 0 ] || { until [ -e $both/killed ]; do sleep 0.1; done; kill -9 $$; }
        touch $both/killed; while true; do sleep 0.1; done"""
    both = [{"name": "both", "access_method": "env", "remote": {"obs": {"obs_url": "/policies/both/"}}}]
    spec = {"resource": {"flavor_id": "modelarts.vm.cpu.8u", "node_count": 2}}
    rules = annotated(job_unconditional_retry="true")
    made = cloud.create("both", program, metadata=rules, algorithm={"outputs": both}, spec=spec).metadata.id
    service.wait("both", "started")
    while cloud.details(made).status.task_statuses is None:
        pass
    assert cloud.details(made).status.phase == "Running"
    stop = {"training_job_id": made, "body": {"action_type": "terminate"}}
    assert cloud("stop_training_job", **stop).status.phase == "Terminating"
    service.wait("both")
    shown = cloud.details(made).status
    assert (shown.phase, len(shown.running_records)) == ("Terminated", 1)


def test_metrics_of_a_job_that_works(cloud: Cloud):
    made = cloud.create("works", "while true; do :; done").metadata.id
    where = {"training_job_id": made, "task_id": "worker-0"}
    cloud.wait_for(made, "start:")
    used: dict[str, list[float]] = {"cpuUsage": []}
    while max(used["cpuUsage"], default=-1) < 5:
        metrics = cloud("show_training_job_metrics", **where).metrics or []
        used = {one.metric: one.value for one in metrics} or used
    assert used["cpuUsage"][0] <= 100
    assert 0 <= used["memUsage"][0] < 50
    for none in ("npuUtil", "npuMemUsage", "gpuUtil", "gpuMemUsage"):
        assert set(used[none]) == {-1}
    cloud("delete_training_job", training_job_id=made)
