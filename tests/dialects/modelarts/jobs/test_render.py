"""A job's status as ModelArts shows it."""

from typing import Any

import pytest

from tests.dialects.modelarts.examples import WHOLE, new_job, row
from turnout.dialects.modelarts.jobs import render
from turnout.job import ENDED, PastAttempt, Reason, Replica, ReplicaState, State
from turnout.service import JobView

SECOND = 1_000_000_000
NEW = new_job(WHOLE)
AT = 1_637_045_545 * SECOND


def replica(index: int, state: ReplicaState = ReplicaState.RUNNING, **fields: Any) -> Replica:
    return Replica(1, 1, "worker", index, state, **fields)


def status(
    state: State,
    reason: Reason | None = None,
    replicas: tuple[Replica, ...] = (),
    past: tuple[PastAttempt, ...] = (),
    ended: int | None = None,
    seconds: float = 10,
) -> dict[str, Any]:
    job = row(NEW, state=state, reason=reason, created=AT, updated=AT, ended=ended, attempt=len(past) + 1)
    view = JobView(job, replicas, NEW.document)
    return render.job(view, past, AT + int(seconds * SECOND))["status"]


@pytest.mark.parametrize(
    ("state", "reason", "phases"),
    [
        (State.QUEUED, None, ("Pending", "Queuing")),
        (State.PREPARING, None, ("Pending", "Queuing")),
        (State.RUNNING, None, ("Running", "Running")),
        (State.STOPPING, Reason.STOPPED, ("Terminating", "Terminating")),
        (State.STOPPING, Reason.KILLED, ("Running", "Running")),
        (State.SUCCEEDED, Reason.SUCCEEDED, ("Completed", "Completed")),
        (State.FAILED, Reason.PROGRAM_FAILED, ("Failed", "Failed")),
        (State.FAILED, Reason.TIME_LIMIT, ("Terminated", "Terminated")),
        (State.FAILED, Reason.NODE_LOST, ("Abnormal", "Lost")),
        (State.STOPPED, Reason.STOPPED, ("Terminated", "Terminated")),
    ],
)
def test_phases(state: State, reason: Reason | None, phases: tuple[str, str]):
    said = status(state, reason)
    assert (said["phase"], said["secondary_phase"]) == phases


def test_every_end_has_a_phase():
    for state in ENDED:
        for reason in Reason:
            assert all(render.phase(row(NEW, state=state, reason=reason)))


def test_a_job_that_waits():
    said = status(State.QUEUED)
    assert (said["duration"], said["start_time"]) == (0, 0)
    assert said["node_count_metrics"] == [[AT // 10**6, 0]]
    assert said["tasks"] == ["worker-0", "worker-1"]
    assert "task_statuses" not in said
    assert "running_records" not in said


def test_an_attempt_that_ended_before_a_task_ran_has_a_record():
    said = status(State.FAILED, Reason.STAGING_FAILED, ended=AT + SECOND)
    at = AT // SECOND + 1
    record = {
        "start_at": at,
        "start_type": "init_or_rescheduled",
        "end_at": at,
        "end_reason": "staging failed",
    }
    assert said["running_records"] == [record]


def test_a_job_that_runs():
    said = status(State.RUNNING, replicas=(replica(0, started=AT + 2 * SECOND), replica(1)))
    assert said["start_time"] == (AT + 2 * SECOND) // 10**6
    assert said["duration"] == 8000
    assert said["node_count_metrics"][-1] == [said["start_time"], 2]
    assert said["running_records"] == [{"start_at": AT // SECOND + 2, "start_type": "init_or_rescheduled"}]


def test_a_job_that_failed_says_who_was_first_and_why():
    first = replica(1, ReplicaState.FAILED, started=AT, ended=AT + SECOND, exit_code=3)
    other = replica(
        0, ReplicaState.STOPPED, started=AT, ended=AT + 2 * SECOND, signal=15, message="was stopped"
    )
    said = status(State.FAILED, Reason.PROGRAM_FAILED, (other, first), ended=AT + 2 * SECOND)
    assert said["duration"] == 2000
    assert said["task_statuses"] == [
        {"task": "worker-1", "exit_code": 3, "message": "ended with exit code 3"},
        {"task": "worker-0", "exit_code": 143, "message": "was stopped"},
    ]
    assert said["node_count_metrics"][-1] == [(AT + 2 * SECOND) // 10**6, 0]
    (record,) = said["running_records"]
    assert (record["end_at"], record["end_related_task"]) == (AT // SECOND + 2, "worker-1")


@pytest.mark.parametrize(
    ("fields", "code", "told"),
    [
        ({"signal": 9}, 137, "memory"),
        ({"exit_code": 137}, 137, "memory"),
        ({"exit_code": 139}, 139, "packages"),
        ({"exit_code": 127}, 127, "does not exist"),
        ({"message": "could not be started"}, -1, "could not be started"),
    ],
)
def test_exit_codes_that_people_ask_about(fields: dict[str, Any], code: int, told: str):
    failed = replica(0, ReplicaState.FAILED, started=AT, ended=AT + SECOND, **fields)
    (said,) = status(State.FAILED, Reason.KILLED, (failed,), ended=AT + SECOND)["task_statuses"]
    assert said["exit_code"] == code
    assert told in said["message"]


def test_out_of_memory_is_called_so():
    failed = replica(0, ReplicaState.FAILED, started=AT, ended=AT + SECOND, signal=9)
    (said,) = status(State.FAILED, Reason.OUT_OF_MEMORY, (failed,), ended=AT + SECOND)["task_statuses"]
    assert "more memory than its flavor has" in said["message"]


def test_a_job_that_was_started_over():
    past = PastAttempt(1, 1, AT + SECOND, AT + 3 * SECOND, Reason.NODE_LOST, "worker-1 was lost", "worker-1")
    again = replica(0, started=AT + 6 * SECOND)
    said = status(State.RUNNING, replicas=(again,), past=(past,))
    assert said["duration"] == 2000 + 4000
    assert said["start_time"] == (AT + SECOND) // 10**6
    assert [count for _, count in said["node_count_metrics"]] == [0, 2, 0, 2]
    first, second = said["running_records"]
    assert (first["start_at"], first["end_at"]) == (AT // SECOND + 1, AT // SECOND + 3)
    assert (first["end_reason"], first["end_related_task"]) == ("worker-1 was lost", "worker-1")
    assert first["end_recover"] == "job_reschedule"
    assert first["recover_records"] == [
        {
            "recover_start_at": AT // SECOND + 3,
            "recover_end_at": AT // SECOND + 6,
            "recover": "job_reschedule",
            "fault_scenario": "node_fault",
            "reason": "worker-1 was lost",
            "related_task": "worker-1",
            "recover_result": "success",
        }
    ]
    assert second == {"start_at": AT // SECOND + 6, "start_type": "init_or_rescheduled"}


def test_a_job_that_waits_to_be_started_over():
    past = PastAttempt(1, 1, AT, AT + SECOND, Reason.HUNG, "nothing moved", "")
    said = status(State.QUEUED, past=(past,))
    assert said["duration"] == 1000
    (record,) = said["running_records"]
    (recovery,) = record["recover_records"]
    assert (recovery["fault_scenario"], recovery["recover_result"]) == ("job_hanged", "recovering")
